// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/grouped/grouped_codec.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <type_traits>

#include "compress/grouped/layout.hpp"
#include "core/kernel_tables.hpp"

namespace onebit {

// ------------------------------------------------------------------------------------------- GroupedFeedback ----

GroupedFeedback::GroupedFeedback(std::span<const Chunk> chunks) : ErrorPlaces(chunks), error(elements()) {}

void GroupedFeedback::get_error(float* values) const {
    for (const Chunk& chunk : chunks()) {
        std::copy_n(error.data() + element_index(chunk, 0), chunk.count, values + packed_index(chunk, 0));
    }
}

void GroupedFeedback::set_error(const float* values) {
    for (const Chunk& chunk : chunks()) {
        std::copy_n(values + packed_index(chunk, 0), chunk.count, error.data() + element_index(chunk, 0));
    }
    zero_masked();
}

void GroupedFeedback::set_mask(std::span<const std::uint32_t> mask) {
    mask_ = mask;
    zero_masked();
}

void GroupedFeedback::zero_masked() {
    if (mask_.empty()) return;
    for (const Chunk& chunk : chunks()) {
        float* const of_chunk = error.data() + element_index(chunk, 0);
        for (std::size_t i = 0; i < chunk.count; ++i) {
            if (!takes_part(mask_.data(), chunk.begin + i)) of_chunk[i] = 0;
        }
    }
}

// ------------------------------------------------------------------------------------------------- a message ----

static_assert(std::endian::native == std::endian::little); // as the wire is
static_assert(kTileElements % kGroupElements == 0);

/// Where in its chunk's message the groups of a tile are, which begins with one.
template <typename Message>
auto GroupedCodec::groups_of(const Tile& tile, Message* message) const {
    Message* const scales = message + grouped_word(kernels_.bits, tile.block.chunk, tile.block.index);
    Message* const codes = scales + scale_words(tile.block.count());
    using Groups = std::conditional_t<std::is_const_v<Message>, GroupsToRead, GroupsToWrite>;
    return Groups{scales + scale_words(tile.in_block), codes + code_words(kernels_.bits, tile.in_block)};
}

std::size_t GroupedCodec::message_words(const Chunk& chunk) const {
    return grouped_word(kernels_.bits, chunk, chunk.blocks());
}

WordRange GroupedCodec::words_of(const Slice& slice) const {
    const std::size_t begin = grouped_word(kernels_.bits, slice.chunk, slice.first_block);
    return {begin, grouped_word(kernels_.bits, slice.chunk, slice.end_block) - begin};
}

// -------------------------------------------------------------------------------------------------- encoding ----

GroupedCodec::GroupedCodec(const GroupedTable& table, const CodecConfig& config)
    : name_(table.name),
      kernels_(*std::ranges::find(table.codes, config.codec, &GroupedKernels::codec)),
      numeric_(numeric_kernels(table.name)),
      threads_(config.threads) {}

std::unique_ptr<Feedback> GroupedCodec::make_feedback(std::span<const Chunk> chunks) const {
    return std::make_unique<GroupedFeedback>(chunks);
}

/// `values_of(tile)`: where the tile's values are.
template <typename ValuesOf>
void GroupedCodec::encode_block(const Block& block, const ValuesOf& values_of, const GroupedFeedback& before,
                                GroupedFeedback& after, Stores stores, std::uint32_t* message) const {
    for_each_tile(block, [&](const Tile& tile) {
        const std::size_t at = before.element_index(block.chunk, block.index) + tile.in_block;
        kernels_.encode(values_of(tile), before.error.data() + at, after.error.data() + at, stores,
                        before.valid(tile.begin()), tile.count, groups_of(tile, message));
    });
}

void GroupedCodec::encode(const ValueSource& values, const Feedback& error_before, Feedback& error_after,
                          std::span<const SliceToEncode> slices) const {
    const auto& before = static_cast<const GroupedFeedback&>(error_before);
    auto& after = static_cast<GroupedFeedback&>(error_after);
    const Stores stores = stores_of(before, after);
    for (const SliceToEncode& encoded : slices) {
        encode_blocks(encoded.slice, threads_, stores, [&](const Block& block) {
            alignas(64) float scratch[kBlockElements];
            encode_values(block, values.read(block, scratch), before, after, stores, encoded.message);
        });
    }
}

/// Not inline: a source that reads takes much of a small stack, and needs no room for means.
[[gnu::noinline]] void GroupedCodec::encode_values(const Block& block, const BlockValues& from,
                                                   const GroupedFeedback& before, GroupedFeedback& after, Stores stores,
                                                   std::uint32_t* message) const {
    assert(!from.blend && from.encoder == nullptr); // see takes_blends
    alignas(64) float means[kTileElements];
    const auto values_of = [&](const Tile& tile) -> const float* {
        if (!from.mean) return from.data + tile.in_block;
        numeric_.mean(from.mean->parts.data(), from.mean->parts.size(), tile.in_block, from.mean->share, tile.count,
                      Stores::kCached, means, Stores::kCached, means);
        return means;
    };
    encode_block(block, values_of, before, after, stores, message);
}

void GroupedCodec::average_encode(std::span<const std::uint32_t* const> messages, float share,
                                  const Feedback& error_before, Feedback& error_after, const Slice& slice,
                                  std::uint32_t* message) const {
    const auto& before = static_cast<const GroupedFeedback&>(error_before);
    auto& after = static_cast<GroupedFeedback&>(error_after);
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

void GroupedCodec::add_up(std::span<const std::uint32_t* const> messages, float share, const Tile& tile,
                          float* sums) const {
    std::fill_n(sums, tile.count, 0.0F);
    for (const std::uint32_t* from : messages) kernels_.add(groups_of(tile, from), share, tile.count, sums);
}

void GroupedCodec::average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                           const ValueSink& values) const {
    decode_tiles(slice, threads_, values,
                 [&](const Tile& tile, float* place) { add_up(messages, share, tile, place); });
}

/// Its groups' scales tell.
bool GroupedCodec::is_finite(const EncodedSlice& encoded) const {
    const auto& [slice, message] = encoded;
    for (std::size_t index = slice.first_block; index < slice.end_block; ++index) {
        const Block block = {slice.chunk, index};
        const std::uint32_t* const scales = groups_of(Tile{block, 0, block.count()}, message).scales;
        const auto finite = [](std::uint32_t scale) { return std::isfinite(std::bit_cast<float>(scale)); };
        if (!std::all_of(scales, scales + scale_words(block.count()), finite)) return false;
    }
    return true;
}

std::size_t GroupedCodec::first_overflowed(std::span<const EncodedSlice> slices) const {
    const auto overflowed = [this](const EncodedSlice& encoded) { return !is_finite(encoded); };
    return static_cast<std::size_t>(std::ranges::find_if(slices, overflowed) - slices.begin());
}

// -------------------------------------------------------------------------------------------------- decoding ----

void GroupedCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                          const ValueSink& values) const {
    for (const EncodedSlice& encoded : slices) {
        decode_tiles(encoded.slice, threads_, values, [&](const Tile& tile, float* place) {
            kernels_.decode(groups_of(tile, encoded.message), mask_at(mask, tile.begin()), tile.count, values.stores(),
                            place);
        });
    }
}

void GroupedCodec::decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                                float* values) const {
    kernels_.decode(groups_of(Tile{block, 0, block.count()}, message), mask_at(mask, block.begin()), block.count(),
                    Stores::kCached, values);
}

// -------------------------------------------------------------------------------------------------- creation ----

Status make_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    const GroupedTable* const table = table_named(available_grouped_kernels(), numeric_kernels(config.kernels).name);
    *codec = std::make_unique<GroupedCodec>(table != nullptr ? *table : reference_grouped_kernels(), config);
    return {};
}

} // namespace onebit
