// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/algorithm.hpp"
#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The flat compressed allreduce with error feedback [1-bit Adam, section 4; EF]: its state, and what is done to it. In
/// which order, and when messages travel, is up to PlainFlat and PipelinedFlat, with the same bits for a result.
///
/// The buffer is cut into one chunk per rank; rank j serves chunk j. Each rank, as a worker, encodes its values plus
/// its worker error and sends every chunk's message to the rank that serves it. Each rank, as a server, averages the
/// messages for its chunk in rank order, adds its server error, encodes the result and sends that one message to
/// everybody. All decode the same messages, so all hold the same bits. Two exchanges, an all-to-all and an all-gather;
/// 2 (n-1)/n * b d/8 bytes sent by a codec of b bits, plus scales.
///
/// Buffers: `incoming_` has n messages for the own chunk. A Round's `messages` has one message for each chunk: in the
/// first exchange what this rank sends (all but its own, which is encoded straight into `incoming_`, unless the
/// transport's all-to-all copies it there), in the second what it receives, its own result among them. What is received
/// there may only be written once what was sent from there has left. The results stay there after the call. With one
/// Round they are overwritten, block by block, as the next call encodes; with two, which take turns, they outlast the
/// next call.
///
/// A tentative call leaves the errors as they were until commit(), for it writes the new ones beside the old ones; and
/// where there are two Rounds, also the results of the call before. Without a commit() it has never been.
class FlatAllreduce {
  public:
    struct Extras {
        bool keep_results = false;    ///< those of the last call are going to be asked for during and after the next
        bool tentative_calls = false; ///< there will be some
        bool exact_sums = false;      ///< run_sum is going to be asked for
        onebit_op_t op = ONEBIT_OP_AVERAGE;
        /// Where the messages of the only round are to lie, zeroed, all_words of them; NULL: in memory of its own.
        std::uint32_t* messages = nullptr;
    };

    /// Words in the messages of all chunks, and what is left free between them (Codec::row_words).
    static std::size_t all_words(const Codec& codec, std::size_t count, std::size_t ranks);

    /// Allocates all that it ever uses.
    FlatAllreduce(const Codec& codec, std::size_t count, std::size_t rank, std::size_t ranks, Extras extras);

    // ---- one call: set_operands, then every slice of every chunk through these verbs, then finish ----

    void set_operands(const Operands& operands) { operands_ = operands; }
    /// Whether the source has anything to encode, and the sink wants anything decoded.
    bool encodes() const { return operands_.source != nullptr; }
    bool decodes() const { return operands_.sink != nullptr && !refused(); }

    void encode(std::span<const Slice> slices);
    void seal_chunks() { codec_.seal(new_worker(), now().worker_messages); }
    /// All is encoded and sent: asks for consent where the call needs any; and whether all have answered.
    Status ask_consent() { return operands_.consent == nullptr ? Status() : operands_.consent->ask(); }
    Status test_consent(bool* known);
    bool refused() const { return operands_.consent != nullptr && !operands_.consent->verdict().ok(); }
    /// Of the own chunk, for which all ranks' messages must be there.
    void average_and_encode(const Slice& slice);
    void seal_result() { codec_.seal(new_server(), std::span(&now().results[rank_], 1)); }
    /// NONFINITE if one of these parts of the result says that its server's error has overflowed. All ranks see the
    /// same messages and so come to the same verdict; unless the codec has failed on one. Of a refused call: OK.
    Status check_result(std::span<const Slice> slices) const;
    /// A GPU's codec knows that only later: true once it does, and then *verdict has it.
    bool find_overflow(Status* verdict) const;
    void decode(std::span<const Slice> slices);
    /// The call is over. One that overflowed was not transactional, unless it was tentative and needed no consent: the
    /// error is reset.
    void finish(const Status& verdict);
    /// Makes the tentative call that has just finished, and needed no consent, a call like others.
    void commit();

    // ---- its exchanges, for planning ----

    std::size_t rounds() const { return rounds_.size(); }
    /// Of the call in flight, or of the next one.
    std::size_t current_round() const { return current_; }
    const Codec& codec() const { return codec_; }
    using WordsOf = std::function<WordRange(const Chunk&)>;
    /// Each plans one of the two exchanges, of the part of every chunk's message that `words_of` says.
    Status plan_chunks(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                       std::unique_ptr<Exchange>* chunks) const;
    Status plan_results(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                        std::unique_ptr<Exchange>* results) const;
    /// The results' along a ring.
    Status plan_ring_of_results(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                                std::unique_ptr<Exchange>* results) const;
    /// Plans both exchanges of whole messages, by the transport's own calls where they are equally long and it has
    /// them; a round planned so is used in no other way. Tags `tag` and `tag` + 1.
    Status plan_whole_exchanges(Transport& transport, std::size_t round, int tag, std::unique_ptr<Exchange>* chunks,
                                std::unique_ptr<Exchange>* results);
    /// Plans both exchanges of whole messages by Bruck's algorithm. Likewise.
    Status plan_bruck_exchanges(Transport& transport, std::size_t round, std::size_t radix, int tag,
                                std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results);

    // ---- state ----

    std::size_t workspace_bytes() const;
    Feedback& worker() { return *worker_; }
    Feedback& server() { return *server_; }
    const Feedback& worker() const { return *worker_; }
    const Feedback& server() const { return *server_; }
    const Chunk& own_chunk() const { return chunks_[rank_]; }
    const std::vector<Chunk>& chunks() const { return chunks_; }

    /// Decodes a block of the last finished call's result; a ValueSource may ask while its block isn't encoded yet.
    void last_result(const Block& block, float* values) const { decode_result(rounds_[last_], block, values); }
    /// Or some blocks of a chunk, or the whole of it.
    void last_result(const Slice& slice, const ValueSink& sink) const {
        decode_result(rounds_[last_], only(slice), sink);
    }
    void last_result(const ValueSink& sink) const { decode_result(rounds_[last_], sink); }
    /// The same as it came: the messages of all chunks, a row each.
    const std::uint32_t* last_messages() const { return rounds_[last_].results.front(); }
    /// Of the call before that one, where results are kept.
    void previous_result(const Block& block, float* values) const { decode_result(rounds_[previous_], block, values); }
    void previous_result(const ValueSink& sink) const { decode_result(rounds_[previous_], sink); }

    /// Replaces the mask (empty: all elements take part; else one bit for each), which is in the codec's memory, and
    /// zeroes the errors outside it.
    void set_mask(AlignedBuffer<std::uint32_t> mask);
    std::span<const std::uint32_t> mask() const { return mask_.view(); }

  private:
    /// The buffers of one call.
    struct Round {
        AlignedBuffer<std::uint32_t> messages;       ///< none where they lie in memory of others
        std::vector<std::uint32_t*> worker_messages; ///< by chunk: where this rank encodes it
        std::vector<std::uint32_t*> results;         ///< by chunk: where its average arrives
    };

    Part part(std::size_t peer, const Chunk& chunk, const std::uint32_t* message, const WordRange& words) const;
    std::size_t native_row_bytes() const;
    Status check_on_host(const char* form) const;

    /// Whether it is up to somebody else to commit the call.
    bool awaits_commit() const { return operands_.tentative && operands_.consent == nullptr; }
    Status overflow_of(const Chunk& chunk) const;
    void decode_result(const Round& round, const Block& block, float* values) const {
        codec_.decode_block(round.results[block.chunk.index], block, mask_.view(), values);
    }
    void decode_result(const Round& round, std::span<const Slice> slices, const ValueSink& sink) const;
    void decode_result(const Round& round, const ValueSink& sink) const;
    std::span<const EncodedSlice> results_of(const Round& round, std::span<const Slice> slices) const;
    bool on_device() const { return &codec_.memory() != &host_memory(); }
    const Round& now() const { return rounds_[current_]; }
    Feedback& new_worker() { return operands_.tentative ? *next_worker_ : *worker_; }
    Feedback& new_server() { return operands_.tentative ? *next_server_ : *server_; }
    void take_turns();

    const Codec& codec_;
    std::size_t rank_;
    float share_; ///< of a rank's values in the result
    std::vector<Chunk> chunks_;
    Operands operands_;
    std::unique_ptr<Feedback> worker_;
    std::unique_ptr<Feedback> server_;
    std::unique_ptr<Feedback> next_worker_; ///< of a tentative call; else NULL
    std::unique_ptr<Feedback> next_server_;
    AlignedBuffer<std::uint32_t> mask_;
    AlignedBuffer<std::uint32_t> incoming_;
    std::vector<const std::uint32_t*> to_be_averaged_;      ///< by rank: its message for the own chunk
    std::vector<Round> rounds_;                             ///< one or two
    std::vector<SliceToEncode> to_encode_;                  ///< of a verb's slices; has its room
    mutable std::vector<EncodedSlice> to_read_;             ///< likewise
    std::vector<AlignedBuffer<std::byte>> passing_through_; ///< messages between others, where they travel so
    std::size_t current_ = 0;                               ///< the round of the call in flight, or of the next one
    std::size_t last_ = 0;                                  ///< the round of the last finished call
    std::size_t previous_ = 0;                              ///< and of the one before it
};

} // namespace onebit
