// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/flat.hpp"

namespace onebit {

/// The flat allreduce in pieces, some of which are on the wire while others are encoded, averaged or decoded.
///
/// Piece k of a chunk is its blocks [k p, (k+1) p). All chunks' pieces k travel together: encoded and sent, averaged
/// as soon as all ranks' are there, sent to everybody, decoded. Three counters say how many pieces have come how far,
/// decoded_ <= averaged_ <= encoded_. A scale that covers more than a piece trails behind all bits: nothing is averaged
/// before all ranks' have come, nothing decoded before all servers' have.
///
/// Results go straight to everybody, or along a ring (ring.hpp), which has to be kept going: what came is passed on.
///
/// The network must never run dry, so at each step what others wait for comes first (passing on, averaging), then what
/// keeps the wire busy (encoding), then what only this rank needs (decoding).
class PipelinedFlat final : public Algorithm {
  public:
    enum class Way { kStraight, kRing }; ///< of the results

    /// `piece_blocks`: p, or more where there would be too many. Local. The four tags from `tag` on are its own on this
    /// channel; with rings ring_tags().
    static Status create(Transport& transport, FlatAllreduce& flat, Way way, std::size_t piece_blocks, int tag,
                         std::unique_ptr<PipelinedFlat>* algorithm);

    /// Tags of a way along rings, for `count` elements over so many ranks.
    static int ring_tags(std::size_t count, std::size_t ranks, std::size_t piece_blocks);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;

    /// Of the call in flight: slices that have been encoded, chunk by chunk of piece by piece, and pieces of the result
    /// that are there.
    std::size_t encoded_slices() const { return encoded_ * flat_.chunks().size() + encoded_chunk_; }
    bool all_encoded() const { return encoded_ == pieces_; }
    std::size_t arrived_pieces() const { return decoded_; }

  private:
    /// Of one round of buffers.
    struct Exchanges {
        std::vector<std::unique_ptr<Exchange>> chunks;  ///< by piece
        std::vector<std::unique_ptr<Exchange>> results; ///< by piece
        std::unique_ptr<Exchange> chunk_trailers;
        std::unique_ptr<Exchange> result_trailers;
    };

    PipelinedFlat(FlatAllreduce& flat, Way way, std::size_t piece_blocks);
    Status plan_exchanges(Transport& transport, int tag, std::size_t round);
    Exchanges& exchanges() { return exchanges_[flat_.current_round()]; }
    Slice piece_of(const Chunk& chunk, std::size_t piece) const { return Slice::piece_of(chunk, piece, piece_blocks_); }
    std::span<const Slice> next_slices(std::size_t piece, std::size_t first_chunk);

    Status advance(Step* step);
    Status pass_results_on();
    Status average_next(bool* did);
    Status encode_next(bool* did);
    Status decode_next(bool* did);

    FlatAllreduce& flat_;
    Way way_;
    std::size_t piece_blocks_;
    std::size_t pieces_ = 0;     ///< of the longest chunk; shorter ones may have an empty last one
    std::size_t chunks_at_once_; ///< whose pieces are encoded or decoded in one step
    bool trailing_;              ///< whether messages have trailers
    std::vector<Exchanges> exchanges_;

    // The call in flight.
    const std::function<bool()>* ready_ = nullptr;
    std::size_t encoded_ = 0;       ///< pieces that have been encoded, of all chunks, and sent
    std::size_t encoded_chunk_ = 0; ///< and chunks of the next one
    std::size_t averaged_ = 0;
    std::size_t decoded_ = 0;
    std::size_t decoded_chunk_ = 0; ///< likewise
    std::vector<Slice> slices_;     ///< of a step; has its room
    Status verdict_; ///< what was wrong with a result: nothing more is decoded, but all messages are waited for
    std::vector<Stage> stages_;
};

} // namespace onebit
