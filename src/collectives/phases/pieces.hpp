// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/phases/message_layout.hpp"
#include "core/partition.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// How chunks are cut into pieces that travel one after the other: piece k of a chunk is its blocks [k p, (k+1) p). All
/// chunks' pieces k travel together.
struct Pieces {
    /// Of p = `blocks` blocks; more where a chunk would have more pieces than `most`, or than a GPU is quick with.
    Pieces(const MessageLayout& layout, std::size_t blocks, std::size_t most = SIZE_MAX);

    /// The same p, for chunks of which the longest has `most_blocks` blocks.
    static std::size_t blocks_for(std::size_t blocks, std::size_t most_blocks, std::size_t most) {
        return std::max(blocks, ceil_divide(most_blocks, most));
    }

    Slice of(const Chunk& chunk, std::size_t piece) const { return Slice::piece_of(chunk, piece, blocks); }

    std::size_t blocks;         ///< p
    std::size_t count = 0;      ///< of the longest chunk; the last pieces of shorter chunks may be empty
    std::size_t chunks_at_once; ///< whose pieces a verb is given; after each verb the host serves the network
    bool trailing;              ///< whether messages have trailers
};

/// Walks all pieces: piece k of all chunks, then piece k + 1.
class PieceCursor {
  public:
    PieceCursor(std::span<const Chunk> chunks, const Pieces& pieces) : chunks_(chunks), pieces_(pieces) {
        slices_.reserve(pieces.chunks_at_once);
    }

    void restart() { piece_ = chunk_ = 0; }
    /// Number of pieces passed in all chunks; and of chunks passed in the next piece.
    std::size_t piece() const { return piece_; }
    std::size_t chunk() const { return chunk_; }
    bool at_end() const { return piece_ == pieces_.count; }

    /// The slices that come next, to be handled in one step.
    std::span<const Slice> next() {
        slices_.clear();
        const std::size_t end = std::min(chunk_ + pieces_.chunks_at_once, chunks_.size());
        for (std::size_t j = chunk_; j < end; ++j) slices_.push_back(pieces_.of(chunks_[j], piece_));
        return slices_;
    }
    /// The slices of next() are done. True if they were the last ones of a piece.
    bool pass() {
        chunk_ += slices_.size();
        if (chunk_ < chunks_.size()) return false;
        chunk_ = 0;
        ++piece_;
        return true;
    }

  private:
    std::span<const Chunk> chunks_;
    const Pieces& pieces_;
    std::size_t piece_ = 0;
    std::size_t chunk_ = 0;
    std::vector<Slice> slices_; ///< of a step; room is reserved
};

/// The exchanges of one phase in one round, by piece. A scale that covers more than a piece trails behind all bits: no
/// piece can be worked on before all ranks' trailers have come.
struct PieceExchanges {
    std::vector<std::unique_ptr<Exchange>> pieces;
    std::unique_ptr<Exchange> trailers;

    /// Whether a piece has come and can be worked on. `all_started`: the trailers' exchange has started, too.
    Status test(std::size_t piece, bool trailing, bool all_started, bool* done) const {
        ONEBIT_RETURN_IF_ERROR(pieces[piece]->test(done));
        if (!*done || !trailing) return {};
        *done = all_started;
        return *done ? trailers->test(done) : Status();
    }
};

} // namespace onebit
