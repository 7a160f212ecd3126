// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/phases/carried_error.hpp"
#include "collectives/phases/message_layout.hpp"

namespace onebit {

/// NONFINITE where one of the results was too large for a sink.
Status look_at_results(const ValueSink& sink);

/// The second half of a compressed allreduce, or all of an all-gather. Each rank, as the server of its chunk, has
/// encoded one message, which goes to everybody. All decode the same messages, so all have the same bits.
///
/// Rounds as in ScatterPhase. The messages stay where they are after a call.
class GatherPhase {
  public:
    /// `rows`: by round and chunk, where the chunk's message arrives, or is encoded. The layout must outlive it.
    GatherPhase(const MessageLayout& layout, std::vector<std::vector<std::uint32_t*>> rows, bool tentative_calls);

    const MessageLayout& layout() const { return layout_; }
    std::size_t rounds() const { return rows_.size(); }
    std::size_t round() const { return round_; }
    CarriedError& error() { return error_; }
    const CarriedError& error() const { return error_; }

    // ---- one call: begin, the own message encoded and sealed, then every slice checked and decoded ----

    void begin(const Operands& operands, std::size_t round);
    /// Where the own chunk's message is encoded; and the error that is left.
    std::uint32_t* own_message() const { return rows_[round_][layout_.rank()]; }
    Feedback& error_after() { return error_.after(operands_.tentative); }
    void seal() { layout_.codec().seal(error_after(), std::span(&rows_[round_][layout_.rank()], 1)); }
    /// Whether all have voted, where a vote is held; and whether one has refused.
    Status test_vote(bool* known);
    bool refused() const { return operands_.vote != nullptr && !operands_.vote->verdict().ok(); }
    /// Whether the sink wants anything decoded.
    bool decodes() const { return operands_.sink != nullptr && !refused(); }
    /// NONFINITE if one of these messages says that its server's error has overflowed. All ranks see the same messages
    /// and so come to the same verdict, unless the codec has failed on a rank. Of a refused call: OK.
    Status check(std::span<const Slice> slices) const;
    /// A GPU's codec knows of an overflow only later: true once it knows; then *verdict has the verdict.
    bool find_overflow(Status* verdict) const;
    /// NONFINITE where a result is too large for the sink: on every rank, as for check.
    Status decode(std::span<const Slice> slices) const {
        decode(round_, slices, *operands_.sink);
        return look_at_results(*operands_.sink);
    }

    // ---- its exchange, for planning ----

    /// Of the part of every chunk's message that `words_of` gives: straight to everybody, or along a ring.
    Status plan(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                std::unique_ptr<Exchange>* exchange) const;
    Status plan_ring(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                     std::unique_ptr<Exchange>* exchange) const;

    // ---- what lies there after a call ----

    std::span<std::uint32_t* const> rows(std::size_t round) const { return rows_[round]; }
    void decode(std::size_t round, std::span<const Slice> slices, const ValueSink& sink) const;
    void decode(std::size_t round, const ValueSink& sink) const;
    void decode(std::size_t round, const Block& block, float* values) const {
        layout_.codec().decode_block(rows_[round][block.chunk.index], block, mask_, values);
    }

    /// From now on only elements whose bit is 1 take part; the words cover the whole buffer and are not copied.
    void set_mask(std::span<const std::uint32_t> mask);

  private:
    std::span<const EncodedSlice> messages_of(std::size_t round, std::span<const Slice> slices) const;
    Status overflow_of(const Chunk& chunk) const;

    const MessageLayout& layout_;
    std::vector<std::vector<std::uint32_t*>> rows_;
    CarriedError error_;
    std::span<const std::uint32_t> mask_;
    mutable std::vector<EncodedSlice> to_read_; ///< of a verb's slices; room is reserved

    // The call in flight.
    Operands operands_;
    std::size_t round_ = 0;
};

} // namespace onebit
