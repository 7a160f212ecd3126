// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace onebit {

/// Elements that share one 32-bit word of signs on the wire.
inline constexpr std::size_t kWordElements = 32;
/// Elements of a block: the unit of work, of reproducible sums, and of ONEBIT_GROUP_BLOCK's scales.
inline constexpr std::size_t kBlockElements = 4096;

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) {
    return (a + b - 1) / b;
}

/// Whether element `i`, counted from a mask's first word, takes part; NULL: all do.
constexpr bool takes_part(const std::uint32_t* mask, std::size_t i) {
    return mask == nullptr || (mask[i / kWordElements] >> (i % kWordElements) & 1) != 0;
}

/// The elements [begin, begin + count) of the whole buffer that one rank serves. Its blocks are counted from its own
/// beginning; the last one may be short.
struct Chunk {
    std::size_t index = 0;
    std::size_t begin = 0;
    std::size_t count = 0;

    constexpr std::size_t words() const { return ceil_divide(count, kWordElements); }
    constexpr std::size_t blocks() const { return ceil_divide(count, kBlockElements); }
};

/// Block number `index` of a chunk. Positions count from the beginning of the whole buffer.
struct Block {
    Chunk chunk;
    std::size_t index = 0;

    constexpr std::size_t begin() const { return chunk.begin + index * kBlockElements; }
    constexpr std::size_t count() const {
        const std::size_t left = chunk.count - index * kBlockElements;
        return left < kBlockElements ? left : kBlockElements; // std::min's references: not to host constants on a GPU
    }
};

/// Splits `count` elements into `ranks` consecutive chunks of whole words that differ by one word at most. (Padding to
/// a multiple of ranks * 32 instead would blow a short tensor up 64 times at 256 ranks.)
inline std::vector<Chunk> partition(std::size_t count, std::size_t ranks) {
    const std::size_t words = ceil_divide(count, kWordElements);
    std::vector<Chunk> chunks(ranks);
    std::size_t word = 0;
    for (std::size_t j = 0; j < ranks; ++j) {
        const std::size_t next = word + words / ranks + (j < words % ranks ? 1 : 0);
        const std::size_t begin = std::min(word * kWordElements, count);
        chunks[j] = {j, begin, std::min(next * kWordElements, count) - begin};
        word = next;
    }
    return chunks;
}

/// Some blocks of a chunk: an algorithm's work between two looks at the network.
struct Slice {
    Chunk chunk;
    std::size_t first_block = 0;
    std::size_t end_block = 0;

    static Slice whole(const Chunk& chunk) { return {chunk, 0, chunk.blocks()}; }
    /// Piece number `piece` of a chunk that is cut into pieces of so many blocks; empty past its end.
    static Slice piece_of(const Chunk& chunk, std::size_t piece, std::size_t piece_blocks) {
        return {chunk, std::min(piece * piece_blocks, chunk.blocks()),
                std::min((piece + 1) * piece_blocks, chunk.blocks())};
    }

    constexpr std::size_t blocks() const { return end_block - first_block; }
    /// Its elements, counted from the beginning of the whole buffer.
    std::size_t begin() const { return chunk.begin + std::min(first_block * kBlockElements, chunk.count); }
    std::size_t count() const { return chunk.begin + std::min(end_block * kBlockElements, chunk.count) - begin(); }
};

/// Walks all blocks of some chunks, a slice at a time.
class SliceCursor {
  public:
    /// 512 Ki elements: some 100 microseconds of work, so that test() returns soon, and enough for several threads.
    static constexpr std::size_t kSliceBlocks = 128;

    explicit SliceCursor(std::size_t slice_blocks = kSliceBlocks) : slice_blocks_(slice_blocks) {}

    void restart() { chunk_ = block_ = 0; }

    /// The next slice of the chunks; false when there is none left.
    bool next(const std::vector<Chunk>& chunks, Slice* slice) { return next(chunks, slice_blocks_, slice); }
    /// The next slices, which together have no more blocks than one may have.
    bool next(const std::vector<Chunk>& chunks, std::vector<Slice>* slices) {
        slices->clear();
        std::size_t left = slice_blocks_;
        for (Slice slice; next(chunks, left, &slice); left -= slice.blocks()) slices->push_back(slice);
        return !slices->empty();
    }

  private:
    bool next(const std::vector<Chunk>& chunks, std::size_t most_blocks, Slice* slice) {
        while (chunk_ < chunks.size() && block_ == chunks[chunk_].blocks()) {
            ++chunk_;
            block_ = 0;
        }
        if (chunk_ == chunks.size() || most_blocks == 0) return false;
        const std::size_t end = block_ + std::min(most_blocks, chunks[chunk_].blocks() - block_);
        *slice = {chunks[chunk_], block_, end};
        block_ = end;
        return true;
    }

    std::size_t slice_blocks_;
    std::size_t chunk_ = 0;
    std::size_t block_ = 0;
};

} // namespace onebit
