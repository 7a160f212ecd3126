// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/phases/pieces.hpp"

namespace onebit {
namespace {

/// Each piece costs a GPU launches, copies and events: 40 microseconds on an H200 (docs/GPU_STATUS.md).
constexpr std::size_t kMostOnDevice = 16;

} // namespace

Pieces::Pieces(const MessageLayout& layout, std::size_t piece_blocks, std::size_t most)
    : blocks(piece_blocks), chunks_at_once(1), trailing(false) {
    std::size_t most_blocks = 0;
    for (const Chunk& chunk : layout.chunks()) {
        most_blocks = std::max(most_blocks, chunk.blocks());
        trailing |= layout.codec().trailer_of(chunk).count > 0;
    }
    if (layout.codec().blocks_at_once() == Codec::kUnlimited) { // a GPU is given the pieces of all chunks
        chunks_at_once = layout.chunks().size();
        most = std::min(most, kMostOnDevice);
    }
    blocks = blocks_for(blocks, most_blocks, most);
    count = ceil_divide(most_blocks, blocks);
}

} // namespace onebit
