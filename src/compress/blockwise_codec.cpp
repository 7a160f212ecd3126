// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/blockwise_codec.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace onebit {

static_assert(std::endian::native == std::endian::little); // as the wire is

WordRange BlockwiseCodec::words_of(const Slice& slice) const {
    const std::size_t begin = first_word(slice.chunk, slice.first_block);
    return {begin, first_word(slice.chunk, slice.end_block) - begin};
}

std::unique_ptr<Feedback> BlockwiseCodec::make_feedback(std::span<const Chunk> chunks) const {
    return std::make_unique<StoredError>(chunks, error_type_, numeric_);
}

// -------------------------------------------------------------------------------------------------- encoding ----

/// `state` has the mask, and the seeds (Draw).
template <typename ValuesOf>
void BlockwiseCodec::encode_tiles(const Block& block, const ValuesOf& values_of, const StoredError& state,
                                  const float* before, float* after, Stores stores, std::uint32_t* message) const {
    for_each_tile(block, [&](const Tile& tile) {
        encode_tile(tile, state.draw(), values_of(tile), before + tile.in_block, after + tile.in_block, stores,
                    mask_at(state.mask(), tile.begin()), message);
    });
    finish_block(block, state.draw(), after, message);
}

template <typename ValuesOf>
void BlockwiseCodec::encode_block(const Block& block, const ValuesOf& values_of, const StoredError& before,
                                  StoredError& after, Stores stores, std::uint32_t* message) const {
    if (after.is_narrow()) {
        encode_narrow(block, values_of, before, after, message);
    } else {
        const std::size_t first = before.element_index(block.chunk, block.index);
        encode_tiles(block, values_of, before, before.floats(first), after.floats(first), stores, message);
    }
}

/// Not inline, so that errors stored as floats need no room on a small stack.
template <typename ValuesOf>
[[gnu::noinline]] void BlockwiseCodec::encode_narrow(const Block& block, const ValuesOf& values_of,
                                                     const StoredError& before, StoredError& after,
                                                     std::uint32_t* message) const {
    const std::size_t first = before.element_index(block.chunk, block.index);
    alignas(64) float error[kBlockElements];
    before.read(first, block.count(), error);
    encode_tiles(block, values_of, before, error, error, Stores::kCached, message);
    after.write(first, block.count(), error);
}

void BlockwiseCodec::encode(const ValueSource& values, const Feedback& error_before, Feedback& error_after,
                            std::span<const SliceToEncode> slices) const {
    const auto& before = static_cast<const StoredError&>(error_before);
    auto& after = static_cast<StoredError&>(error_after);
    const Stores stores = stores_of(before, after);
    for (const SliceToEncode& encoded : slices) {
        encode_blocks(encoded.slice, threads_, stores, [&](const Block& block) {
            alignas(64) float scratch[kBlockElements];
            encode_values(block, values.read(block, scratch), before, after, stores, encoded.message);
        });
    }
}

/// Not inline: a source that reads takes much of a small stack, which has no room for this function then.
[[gnu::noinline]] void BlockwiseCodec::encode_values(const Block& block, const BlockValues& from,
                                                     const StoredError& before, StoredError& after, Stores stores,
                                                     std::uint32_t* message) const {
    assert(!from.blend && from.encoder == nullptr); // see takes_blends
    if (from.mean) return encode_mean(block, *from.mean, before, after, stores, message);
    encode_block(
        block, [&](const Tile& tile) { return from.data + tile.in_block; }, before, after, stores, message);
}

/// Not inline, likewise.
[[gnu::noinline]] void BlockwiseCodec::encode_mean(const Block& block, const Mean& mean, const StoredError& before,
                                                   StoredError& after, Stores stores, std::uint32_t* message) const {
    alignas(64) float means[kTileElements];
    const auto values_of = [&](const Tile& tile) -> const float* {
        numeric_.mean(mean.parts.data(), mean.parts.size(), tile.in_block, mean.share, tile.count, Stores::kCached,
                      means, Stores::kCached, means);
        return means;
    };
    encode_block(block, values_of, before, after, stores, message);
}

void BlockwiseCodec::average_encode(std::span<const std::uint32_t* const> messages, float share,
                                    const Feedback& error_before, Feedback& error_after, const Slice& slice,
                                    std::uint32_t* message) const {
    const auto& before = static_cast<const StoredError&>(error_before);
    auto& after = static_cast<StoredError&>(error_after);
    const Stores stores = stores_of(before, after);
    encode_blocks(slice, threads_, stores, [&](const Block& block) {
        alignas(64) float sums[kTileElements];
        const auto values_of = [&](const Tile& tile) {
            add_up(messages, share, tile, sums);
            return sums;
        };
        encode_block(block, values_of, before, after, stores, message);
    });
}

void BlockwiseCodec::add_up(std::span<const std::uint32_t* const> messages, float share, const Tile& tile,
                            float* sums) const {
    std::fill_n(sums, tile.count, 0.0F);
    for (const std::uint32_t* from : messages) add(tile, from, share, sums);
}

void BlockwiseCodec::average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                             const ValueSink& values) const {
    decode_tiles(slice, threads_, values,
                 [&](const Tile& tile, float* place) { add_up(messages, share, tile, place); });
}

bool BlockwiseCodec::all_finite(const EncodedSlice& encoded) const {
    const Slice& slice = encoded.slice;
    for (std::size_t index = slice.first_block; index < slice.end_block; ++index) {
        if (!is_finite(Block{slice.chunk, index}, encoded.message)) return false;
    }
    return true;
}

std::size_t BlockwiseCodec::first_overflowed(std::span<const EncodedSlice> slices) const {
    const auto overflowed = [this](const EncodedSlice& encoded) { return !all_finite(encoded); };
    return static_cast<std::size_t>(std::ranges::find_if(slices, overflowed) - slices.begin());
}

// -------------------------------------------------------------------------------------------------- decoding ----

void BlockwiseCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                            const ValueSink& values) const {
    for (const EncodedSlice& encoded : slices) {
        decode_tiles(encoded.slice, threads_, values, [&](const Tile& tile, float* place) {
            decode_tile(tile, encoded.message, mask_at(mask, tile.begin()), values.stores(), place);
        });
    }
}

void BlockwiseCodec::decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                                  float* values) const {
    decode_tile(Tile{block, 0, block.count()}, message, mask_at(mask, block.begin()), Stores::kCached, values);
}

} // namespace onebit
