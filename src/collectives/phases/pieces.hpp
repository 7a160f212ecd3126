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
    /// Of p = `blocks` blocks; of more where a chunk would have more pieces than `most`, or than a GPU is quick with.
    Pieces(const MessageLayout& layout, std::size_t blocks, std::size_t most = SIZE_MAX);

    /// The same for chunks the longest of which has so many blocks.
    static std::size_t blocks_for(std::size_t blocks, std::size_t most_blocks, std::size_t most) {
        return std::max(blocks, ceil_divide(most_blocks, most));
    }

    Slice of(const Chunk& chunk, std::size_t piece) const { return Slice::piece_of(chunk, piece, blocks); }

    std::size_t blocks;         ///< p
    std::size_t count = 0;      ///< of the longest chunk; shorter ones may have an empty last one, or several
    std::size_t chunks_at_once; ///< whose pieces a verb is given: the host looks after the network after each
    bool trailing;              ///< whether messages have trailers
};

/// Walks all pieces, chunk by chunk of piece by piece.
class PieceCursor {
  public:
    PieceCursor(std::span<const Chunk> chunks, const Pieces& pieces) : chunks_(chunks), pieces_(pieces) {
        slices_.reserve(pieces.chunks_at_once);
    }

    void restart() { piece_ = chunk_ = 0; }
    /// Pieces that are passed, of all chunks; and chunks of the next one.
    std::size_t piece() const { return piece_; }
    std::size_t chunk() const { return chunk_; }
    bool at_end() const { return piece_ == pieces_.count; }

    /// Those that come next, to be looked after in one step.
    std::span<const Slice> next() {
        slices_.clear();
        const std::size_t end = std::min(chunk_ + pieces_.chunks_at_once, chunks_.size());
        for (std::size_t j = chunk_; j < end; ++j) slices_.push_back(pieces_.of(chunks_[j], piece_));
        return slices_;
    }
    /// That is done. True where it was the last of a piece.
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
    std::vector<Slice> slices_; ///< of a step; has its room
};

/// The exchanges of one phase in one round, by piece. A scale that covers more than a piece trails behind all bits:
/// nothing can be made of any piece before all ranks' trailers have come.
struct PieceExchanges {
    std::vector<std::unique_ptr<Exchange>> pieces;
    std::unique_ptr<Exchange> trailers;

    /// Whether what has come of a piece can be worked on. `all_started`: the trailers are, too.
    Status test(std::size_t piece, bool trailing, bool all_started, bool* done) const {
        ONEBIT_RETURN_IF_ERROR(pieces[piece]->test(done));
        if (!*done || !trailing) return {};
        *done = all_started;
        return *done ? trailers->test(done) : Status();
    }
};

} // namespace onebit
