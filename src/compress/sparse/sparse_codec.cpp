// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sparse/sparse_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compress/grouped/integer.hpp"
#include "core/kernel_tables.hpp"

namespace onebit {
namespace {

/// Of finite values: their bits are in the same order, and compilers vectorize this.
float largest_of(std::span<const float> values) {
    std::uint32_t largest = 0;
    for (const float c : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(c) & 0x7fffffffU);
    return std::bit_cast<float>(largest);
}

/// How a kept value is coded: in 8 bits as an integer, in 2 as its sign.
struct KeptInteger {
    using Code = Integer<kLongCode>;
    static float scale_of(std::span<const float> kept) { return Code::scale_of(largest_of(kept)); }
    explicit KeptInteger(float scale) : code_of(scale) {}
    std::uint32_t code(float c) const { return code_of.code(c); }

    Code code_of;
};
struct KeptSign {
    using Code = Integer<kShortCode>;
    static float scale_of(std::span<const float> kept) {
        const auto nonzeros = static_cast<std::ptrdiff_t>(kept.size()) - std::ranges::count(kept, 0.0F);
        const float share = nonzeros == 0 ? 0 : 1 / static_cast<float>(nonzeros);
        float mean = 0;
        for (const float c : kept) mean += std::fabs(c) * share;
        return std::min(mean, largest_of(kept));
    }
    explicit KeptSign(float) {}
    static std::uint32_t code(float c) { return c > 0 ? 1 : c < 0 ? 3 : 0; }
};

/// The kernels that the config names, or the best.
const SparseKernels& kernels_of(const CodecConfig& config) {
    return table_or_reference(available_sparse_kernels(), numeric_kernels(config.kernels).name);
}

} // namespace

SparseCodec::SparseCodec(const CodecConfig& config, const SparseLayout& layout)
    : SparseCodec(kernels_of(config), config, layout) {}

// -------------------------------------------------------------------------------------------------- encoding ----

/// Corrected values stay in the cache until the block is finished: no stores past it.
void SparseCodec::encode_tile(const Tile& tile, const Feedback::Draw&, const float* values, const float* before,
                              float* after, Stores, const std::uint32_t* valid, std::uint32_t*) const {
    kernels_.correct(values, before, after, valid, tile.count);
}

void SparseCodec::finish_block(const Block& block, const Feedback::Draw& draw, float* after,
                               std::uint32_t* message) const {
    const std::size_t count = block.count();
    std::uint32_t* const words = message + layout_.first_word(block.chunk, block.index);
    std::fill_n(words, layout_.words(count), 0U);

    float of_runs[kBlockRuns];
    const float largest = kernels_.find_largest(after, count, of_runs);
    if (!std::isfinite(largest)) {
        words[0] = std::bit_cast<std::uint32_t>(largest);
        return;
    }
    Positions kept;
    choose({block, draw.call, after, of_runs}, &kept, words + SparseLayout::kFirstPosition);
    if (layout_.value_bits == kShortCode) {
        encode_kept<KeptSign>(count, kept, after, words);
    } else {
        encode_kept<KeptInteger>(count, kept, after, words);
    }
}

/// Writes scale and codes, and subtracts their values from the kept elements in `after`.
template <typename Values>
void SparseCodec::encode_kept(std::size_t count, const Positions& kept, float* after, std::uint32_t* words) const {
    const std::size_t entries = layout_.entries(count);
    float values[kMostKept];
    for (std::size_t j = 0; j < entries; ++j) values[j] = after[kept.at[j]];
    const float scale = Values::scale_of({values, entries});
    const Values code_of(scale);
    std::uint32_t* const codes = words + layout_.first_code(count);
    words[0] = std::bit_cast<std::uint32_t>(scale);
    for (std::size_t j = 0; j < entries; ++j) {
        const std::uint32_t code = code_of.code(values[j]);
        write_entry(codes, layout_.value_bits, j, code);
        after[kept.at[j]] = values[j] - Values::Code::value(code, scale);
    }
}

// -------------------------------------------------------------------------------------------------- decoding ----

/// Calls body(i, value) for each kept element of a tile: it is element i of the tile.
template <typename Body>
void SparseCodec::for_each_kept(const Tile& tile, const std::uint32_t* message, const Body& body) const {
    const std::uint32_t* const words = message + layout_.first_word(tile.block.chunk, tile.block.index);
    const std::uint32_t* const codes = words + layout_.first_code(tile.block.count());
    const unsigned bits = layout_.value_bits;
    const auto scale = std::bit_cast<float>(words[0]);
    Positions kept;
    const Entries of_tile = read_positions(tile, words + SparseLayout::kFirstPosition, &kept);
    for (std::size_t j = of_tile.first; j < of_tile.end; ++j) {
        const std::size_t i = kept.at[j] - tile.in_block;
        if (i >= tile.count) continue; // another tile's
        const std::uint32_t code = read_entry(codes, bits, j);
        body(i, bits == kShortCode ? KeptSign::Code::value(code, scale) : KeptInteger::Code::value(code, scale));
    }
}

/// A block that isn't finite makes every sum a NaN, also where the elements that its message names take no part.
void SparseCodec::add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const {
    if (!is_finite(tile.block, message)) std::fill_n(sums, tile.count, std::numeric_limits<float>::quiet_NaN());
    for_each_kept(tile, message, [&](std::size_t i, float value) { sums[i] += value * share; });
}

void SparseCodec::decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                              float* values) const {
    if (stores == Stores::kPastCaches) {
        decode_past_caches(tile, message, valid, values);
    } else {
        decode_cached(tile, message, valid, values);
    }
}

void SparseCodec::decode_cached(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid,
                                float* values) const {
    std::fill_n(values, tile.count, 0.0F);
    for_each_kept(tile, message, [&](std::size_t i, float value) {
        if (takes_part(valid, i)) values[i] = value;
    });
}

/// Writes whole tiles, because lines written in part would be read first. Not inline: only this needs the room.
[[gnu::noinline]] void SparseCodec::decode_past_caches(const Tile& tile, const std::uint32_t* message,
                                                       const std::uint32_t* valid, float* values) const {
    alignas(64) float decoded[kTileElements];
    decode_cached(tile, message, valid, decoded);
    (void)numeric().copy(decoded, tile.count, Stores::kPastCaches, values);
}

bool SparseCodec::is_finite(const Block& block, const std::uint32_t* message) const {
    return std::isfinite(std::bit_cast<float>(message[layout_.first_word(block.chunk, block.index)]));
}

} // namespace onebit
