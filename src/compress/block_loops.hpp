// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.hpp"
#include "core/parallel.hpp"
#include "core/partition.hpp"
#include "core/stores.hpp"

/// What the codecs on the host have in common: the loops over a slice's blocks.
namespace onebit {

/// A mask's words from `element` on, which is the first of a word; NULL where all elements take part.
inline const std::uint32_t* mask_at(std::span<const std::uint32_t> mask, std::size_t element) {
    return mask.empty() ? nullptr : mask.data() + element / kWordElements;
}

/// Calls body(block) for the blocks of a slice, with `loop`, and orders the stores of the bodies. Several threads order
/// them after each block. A single thread orders them once at the end, because ordering waits for the stores.
template <typename Loop, typename Body>
void for_each_block_by(const Loop& loop, const Slice& slice, unsigned threads, Stores stores, const Body& body) {
    loop(slice.first_block, slice.end_block, threads, [&](std::size_t index) {
        body(Block{slice.chunk, index});
        if (threads > 1) order_stores(stores);
    });
    if (threads <= 1) order_stores(stores);
}

/// For an encoder, which doesn't pause.
template <typename Body>
void encode_blocks(const Slice& slice, unsigned threads, Stores stores, const Body& body) {
    const auto loop = [](const auto&... arguments) { parallel_for(arguments...); };
    for_each_block_by(loop, slice, threads, stores, body);
}

/// Up to kTileElements elements of a block.
struct Tile {
    Block block;
    std::size_t in_block; ///< its first element
    std::size_t count;

    std::size_t begin() const { return block.begin() + in_block; }
};

template <typename Body>
void for_each_tile(const Block& block, const Body& body) {
    for (std::size_t at = 0; at < block.count(); at += kTileElements) {
        body(Tile{block, at, std::min(kTileElements, block.count() - at)});
    }
}

/// For a decoder, which may pause (parallel_for_blocks).
template <typename Body>
void decode_blocks(const Slice& slice, unsigned threads, Stores stores, const Body& body) {
    const auto loop = [](const auto&... arguments) { parallel_for_blocks(arguments...); };
    for_each_block_by(loop, slice, threads, stores, body);
}

/// The same tile by tile: body(tile, place) writes each tile to the place that the sink wants.
template <typename Body>
void decode_tiles(const Slice& slice, unsigned threads, const ValueSink& values, const Body& body) {
    decode_blocks(slice, threads, values.stores(), [&](const Block& block) {
        alignas(64) float scratch[kTileElements];
        for_each_tile(block, [&](const Tile& tile) {
            float* const place = values.place(tile.begin(), scratch);
            body(tile, place);
            values.written(block, tile.begin(), tile.count, place);
        });
    });
}

} // namespace onebit
