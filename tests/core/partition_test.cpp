// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/partition.hpp"

#include "support/catch2.hpp"

namespace onebit {
namespace {

TEST_CASE("chunks cover the buffer, in order, balanced to a word", "[partition]") {
    for (const std::size_t count : {1, 2, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 100003}) {
        for (const std::size_t ranks : {1, 2, 3, 4, 7, 256}) {
            CAPTURE(count, ranks);
            const auto chunks = partition(count, ranks);
            REQUIRE(chunks.size() == ranks);
            std::size_t next = 0;
            std::size_t fewest = SIZE_MAX;
            std::size_t most = 0;
            for (std::size_t j = 0; j < ranks; ++j) {
                CHECK(chunks[j].index == j);
                CHECK(chunks[j].begin == next);
                if (next < count) CHECK(next % kWordElements == 0);
                next += chunks[j].count;
                fewest = std::min(fewest, chunks[j].words());
                most = std::max(most, chunks[j].words());
            }
            CHECK(next == count);
            CHECK(most - fewest <= 1);
        }
    }
}

TEST_CASE("a cursor visits every block of every chunk once, in order", "[partition]") {
    const auto chunks = partition(3'000'017, 3);
    SliceCursor cursor;
    for (int round = 0; round < 2; ++round) {
        std::vector<std::size_t> visited(chunks.size(), 0);
        for (Slice slice; cursor.next(chunks, &slice);) {
            CHECK(slice.first_block == visited[slice.chunk.index]);
            CHECK(slice.end_block > slice.first_block);
            visited[slice.chunk.index] = slice.end_block;
        }
        for (const Chunk& chunk : chunks) CHECK(visited[chunk.index] == chunk.blocks());
        cursor.restart();
    }
}

TEST_CASE("a cursor's slices at once have no more blocks than one may have, and are as many as fit", "[partition]") {
    const auto chunks = partition(30 * kBlockElements, 7); // of 5 blocks, the last short
    for (const std::size_t most : {std::size_t{1}, std::size_t{4}, std::size_t{12}, SIZE_MAX}) {
        CAPTURE(most);
        SliceCursor cursor(most);
        std::vector<std::size_t> visited(chunks.size(), 0);
        std::size_t left = 7 * 5;
        for (std::vector<Slice> slices; cursor.next(chunks, &slices);) {
            std::size_t blocks = 0;
            for (const Slice& slice : slices) {
                CHECK(slice.first_block == visited[slice.chunk.index]);
                visited[slice.chunk.index] = slice.end_block;
                blocks += slice.blocks();
            }
            CHECK(blocks == std::min(most, left));
            left -= blocks;
        }
        CHECK(left == 0);
    }
}

} // namespace
} // namespace onebit
