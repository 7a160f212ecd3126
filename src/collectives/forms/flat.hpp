// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/call/delivery.hpp"
#include "collectives/phases/gather_phase.hpp"
#include "collectives/phases/scatter_phase.hpp"
#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The flat compressed allreduce with error feedback [1-bit Adam, section 4; EF]: its two halves, and the step between
/// them. PlainFlat and PipelinedFlat decide in which order its verbs come and when messages travel. Both have the same
/// bits as a result.
///
/// The buffer is cut into one chunk per rank; rank j serves chunk j. Each rank, as a worker, encodes its values plus
/// its worker error and sends every chunk's message to the rank that serves it. Each rank, as a server, averages the
/// messages for its chunk in rank order, adds its server error, encodes the result and sends that one message to
/// everybody. All decode the same messages, so all hold the same bits. There are two exchanges, an all-to-all and an
/// all-gather. A rank sends 2 (n-1)/n * b d/8 bytes with a codec of b bits, plus scales.
///
/// Both halves work in the same buffers. The buffers of a round have one message for each chunk. The first exchange
/// sends these messages. The second one receives into the same buffers, where this rank's own result is, too. A message
/// may be received only once the message sent from the same place has left. The results stay there after the call. With
/// one round the next call overwrites them, block by block, as it encodes. With two rounds, which take turns, they
/// outlast the next call.
///
/// A tentative call writes the new errors beside the old ones, which stay as they were until commit(). With two rounds
/// the results of the call before also stay. Without a commit() the call has no effect.
class FlatAllreduce final : public Delivery {
  public:
    struct Extras {
        bool keep_results = false;    ///< the last call's are asked for during and after the next call
        bool tentative_calls = false; ///< there will be such calls
        onebit_op_t op = ONEBIT_OP_AVERAGE;
        /// Zeroed memory for the messages, all_words for each of rounds(); NULL: in memory of its own.
        std::uint32_t* messages = nullptr;

        std::size_t rounds() const { return keep_results ? 2 : 1; }
    };

    /// Words in the messages of all chunks, and in the gaps between them (Codec::row_words).
    static std::size_t all_words(const Codec& codec, std::size_t count, std::size_t ranks);

    /// Allocates all that it ever uses.
    FlatAllreduce(const Codec& codec, std::size_t count, std::size_t rank, std::size_t ranks, Extras extras);

    // ---- one call: set_operands, then every slice of every chunk through the verbs of both phases, with
    // average_and_encode between them, then finish ----

    void set_operands(const Operands& operands);
    ScatterPhase& scatter() { return scatter_; }
    GatherPhase& gather() { return gather_; }
    /// A slice of the own chunk, for which all ranks' messages must be there.
    void average_and_encode(const Slice& slice);
    /// The call is over. A call that overflowed resets the error, unless it was tentative and needed no vote.
    void finish(const Status& verdict);
    /// Commits the tentative call that has just finished and needed no vote.
    void commit();
    /// Resets the errors, and forgets which messages were the last: until the next call the messages mean nothing.
    void forget();

    // ---- its exchanges, for planning ----

    std::size_t rounds() const { return scatter_.rounds(); }
    /// Of the call in flight, or of the next one.
    std::size_t current_round() const { return current_; }
    /// Of a finished call.
    std::size_t round_of(Call call) const { return call == Call::kLast ? last_ : previous_; }
    const Codec& codec() const { return layout_.codec(); }
    /// Plans both exchanges of whole messages. Where these are equally long, the transport's own calls are used, if it
    /// has them. A round planned like this is used in no other way. Tags `tag` and `tag` + 1.
    Status plan_whole_exchanges(Transport& transport, std::size_t round, int tag, std::unique_ptr<Exchange>* chunks,
                                std::unique_ptr<Exchange>* results);
    /// Plans both exchanges of whole messages by Bruck's algorithm. Likewise.
    Status plan_bruck_exchanges(Transport& transport, std::size_t round, std::size_t radix, int tag,
                                std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results);
    /// For a form whose messages hop: UNSUPPORTED, with its name, on a GPU. The processor copies such messages, or at
    /// least passes them on.
    Status check_on_host(const char* form) const;

    // ---- state ----

    std::size_t workspace_bytes() const;
    Feedback& worker() { return scatter_.error().now(); }
    Feedback& server() { return gather_.error().now(); }
    const Feedback& worker() const { return scatter_.error().now(); }
    const Feedback& server() const { return gather_.error().now(); }
    const Chunk& own_chunk() const { return layout_.own_chunk(); }
    const std::vector<Chunk>& chunks() const override { return layout_.chunks(); }
    using Delivery::last_result;
    /// Also of some blocks of a chunk, or all of them.
    void last_result(const Slice& slice, const ValueSink& sink) const { gather_.decode(last_, only(slice), sink); }
    /// The same result, still encoded: the messages of all chunks, a row each.
    const std::uint32_t* last_messages() const { return gather_.rows(last_).front(); }

    /// Replaces the mask (empty: all elements take part; else one bit for each), which is in the codec's memory, and
    /// zeroes the errors outside it.
    void set_mask(AlignedBuffer<std::uint32_t> mask);
    std::span<const std::uint32_t> mask() const override { return mask_.view(); }

  private:
    void decode(Call call, const Block& block, float* values) const override {
        gather_.decode(round_of(call), block, values);
    }
    void decode(Call call, const ValueSink& sink) const override { gather_.decode(round_of(call), sink); }
    std::vector<std::vector<std::uint32_t*>> rows_by_round(std::uint32_t* messages);
    std::size_t native_row_bytes() const;
    /// Whether the caller decides to commit the call.
    bool awaits_commit() const { return operands_.tentative && operands_.vote == nullptr; }
    void take_turns();

    MessageLayout layout_;
    float share_; ///< of a rank's values in the result
    std::vector<AlignedBuffer<std::uint32_t>>
        messages_; ///< by round, one or two; none where they lie in others' memory
    ScatterPhase scatter_;
    GatherPhase gather_;
    AlignedBuffer<std::uint32_t> mask_;
    std::vector<AlignedBuffer<std::byte>> passing_through_; ///< messages between other ranks, where they hop

    // The call in flight.
    Operands operands_;
    std::size_t current_ = 0;  ///< its round, or that of the next one
    std::size_t last_ = 0;     ///< the round of the last finished call
    std::size_t previous_ = 0; ///< and of the one before it
};

} // namespace onebit
