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
#include "core/aligned_buffer.hpp"

namespace onebit {

/// The first half of a compressed allreduce, or a reduce-scatter without its sums. Each rank, as a worker, encodes its
/// values plus its worker error, and every chunk's message goes to the rank that serves the chunk.
///
/// A round is one set of buffers. Several rounds take turns where a call's messages must outlast the next call.
class ScatterPhase {
  public:
    /// `rows`: by round and chunk, where this rank encodes the chunk's message. It encodes its own chunk's message
    /// where the others' messages for this chunk arrive. The layout must outlive it.
    ScatterPhase(const MessageLayout& layout, std::vector<std::vector<std::uint32_t*>> rows, bool tentative_calls);

    const MessageLayout& layout() const { return layout_; }
    std::size_t rounds() const { return rows_.size(); }
    std::size_t round() const { return round_; }
    CarriedError& error() { return error_; }
    const CarriedError& error() const { return error_; }

    // ---- one call: begin, then every slice of every chunk through encode, then seal ----

    /// `last`: by chunk, the messages that blends refer to; may be empty where no source has a blend.
    void begin(const Operands& operands, std::size_t round, std::span<std::uint32_t* const> last);
    /// Whether there is anything to encode.
    bool encodes() const { return operands_.source != nullptr; }
    void encode(std::span<const Slice> slices);
    void seal() { layout_.codec().seal(error_.after(operands_.tentative), rows_[round_]); }
    /// All is encoded and sent: votes, where a vote is held.
    Status cast_vote() { return operands_.vote == nullptr ? Status() : operands_.vote->cast(); }
    /// By rank: its message for the own chunk.
    std::span<const std::uint32_t* const> received() const { return received_; }

    // ---- its exchange, for planning ----

    /// Of the part of every chunk's message that `words_of` gives.
    Status plan(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                std::unique_ptr<Exchange>* exchange) const;
    std::span<std::uint32_t* const> rows(std::size_t round) const { return rows_[round]; }
    std::uint32_t* incoming() { return incoming_.data(); }
    /// Encodes the own message in `row`; the exchange copies it from there to its usual place.
    void encode_own_at(std::size_t round, std::uint32_t* row) { rows_[round][layout_.rank()] = row; }

    std::size_t workspace_bytes() const { return incoming_.bytes() + error_.workspace_bytes(); }

  private:
    const MessageLayout& layout_;
    std::vector<std::vector<std::uint32_t*>> rows_;
    AlignedBuffer<std::uint32_t> incoming_;
    std::vector<const std::uint32_t*> received_;
    CarriedError error_;
    std::vector<SliceToEncode> to_encode_; ///< of a verb's slices; room is reserved

    // The call in flight.
    Operands operands_;
    std::size_t round_ = 0;
    std::span<std::uint32_t* const> last_;
};

} // namespace onebit
