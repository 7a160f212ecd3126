// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/topk/topk_codec.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "compress/grouped/integer.hpp"
#include "core/kernel_tables.hpp"

namespace onebit {
namespace {

/// How a kept value is coded: in 8 bits as an integer, in 2 as its sign.
struct KeptInteger {
    using Code = Integer<kLongCode>;
    static float scale_of(float largest, std::span<const float>) { return Code::scale_of(largest); }
    explicit KeptInteger(float scale) : code_of(scale) {}
    std::uint32_t code(float c) const { return code_of.code(c); }

    Code code_of;
};
struct KeptSign {
    using Code = Integer<kShortCode>;
    static float scale_of(float largest, std::span<const float> kept) {
        const auto nonzeros = static_cast<std::ptrdiff_t>(kept.size()) - std::ranges::count(kept, 0.0F);
        const float share = nonzeros == 0 ? 0 : 1 / static_cast<float>(nonzeros);
        float mean = 0;
        for (const float c : kept) mean += std::fabs(c) * share;
        return std::min(mean, largest);
    }
    explicit KeptSign(float) {}
    static std::uint32_t code(float c) { return c > 0 ? 1 : c < 0 ? 3 : 0; }
};

/// The least magnitude that isn't 0: corrected values are never subnormal.
constexpr float kLeast = FLT_MIN;

/// To the elements that are kept, all that are larger than this magnitude, adds the earliest of those that have it.
void add_equals(const float* corrected, float magnitude, std::size_t found, std::size_t entries, Positions* kept) {
    std::uint16_t* const to = kept->at;
    std::uint16_t larger[kMostKept];
    std::copy_n(to, found, larger);
    std::size_t next = 0; // of the larger ones
    std::size_t equals = entries - found;
    for (std::size_t i = 0, taken = 0; taken < entries; ++i) {
        const bool is_larger = next < found && larger[next] == i;
        const bool is_equal = equals > 0 && std::fabs(corrected[i]) == magnitude;
        next += is_larger ? 1 : 0;
        equals -= is_equal ? 1 : 0;
        if (is_larger || is_equal) to[taken++] = static_cast<std::uint16_t>(i);
    }
}

} // namespace

TopkCodec::TopkCodec(const TopkKernels& kernels, const CodecConfig& config)
    : BlockwiseCodec(kernels.name, config), kernels_(kernels), layout_(TopkLayout::of(config.topk)) {}

// -------------------------------------------------------------------------------------------------- encoding ----

/// What is corrected stays in the cache until the block is finished: no stores past it.
void TopkCodec::encode_tile(const Tile& tile, const float* values, const float* before, float* after, Stores,
                            const std::uint32_t* valid, std::uint32_t*) const {
    kernels_.correct(values, before, after, valid, tile.count);
}

void TopkCodec::finish_block(const Block& block, float* after, std::uint32_t* message) const {
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
    choose(after, count, of_runs, &kept);
    if (layout_.value_bits == kShortCode) {
        encode_kept<KeptSign>(count, largest, kept, after, words);
    } else {
        encode_kept<KeptInteger>(count, largest, kept, after, words);
    }
}

/// The largest elements, of equal ones the earlier.
void TopkCodec::choose(const float* corrected, std::size_t count, const float* of_runs, Positions* kept) const {
    const std::size_t entries = layout_.entries(count);

    // So many elements at least are as large as that many runs' largest: a bound that few others reach. Where fewer
    // runs have any but zeros, all that aren't reach it.
    const float bound = std::max(kernels_.find_kth(of_runs, ceil_divide(count, kRunElements), entries), kLeast);
    const std::size_t found = kernels_.find_at_least(corrected, count, of_runs, bound, kept);
    if (found == entries) return;
    if (found < entries) return add_equals(corrected, 0, found, entries, kept);

    // The smallest that is kept is among those.
    if (found > Positions::kMost) {
        const float smallest = kernels_.find_kth(corrected, count, entries);
        const float above = std::bit_cast<float>(std::bit_cast<std::uint32_t>(smallest) + 1);
        const std::size_t larger = kernels_.find_at_least(corrected, count, of_runs, above, kept);
        return add_equals(corrected, smallest, larger, entries, kept);
    }
    float candidates[Positions::kMost];
    for (std::size_t j = 0; j < found; ++j) candidates[j] = std::fabs(corrected[kept->at[j]]);
    const float smallest = kernels_.find_kth(candidates, found, entries);
    const auto is_larger = [=](float magnitude) { return magnitude > smallest; };
    std::size_t equals = entries - static_cast<std::size_t>(std::count_if(candidates, candidates + found, is_larger));
    for (std::size_t j = 0, taken = 0; taken < entries; ++j) {
        const bool is_equal = candidates[j] == smallest && equals > 0;
        kept->at[taken] = kept->at[j]; // without asking
        equals -= is_equal ? 1 : 0;
        taken += is_larger(candidates[j]) || is_equal ? 1 : 0;
    }
}

/// Writes scale, positions and codes, and takes what they stand for off the kept elements in `after`.
template <typename Values>
void TopkCodec::encode_kept(std::size_t count, float largest, const Positions& kept, float* after,
                            std::uint32_t* words) const {
    const std::size_t entries = layout_.entries(count);
    float values[kMostKept];
    for (std::size_t j = 0; j < entries; ++j) values[j] = after[kept.at[j]];
    const float scale = Values::scale_of(largest, {values, entries});
    const Values code_of(scale);
    words[0] = std::bit_cast<std::uint32_t>(scale);
    for (std::size_t j = 0; j < entries; ++j) {
        const std::uint32_t code = code_of.code(values[j]);
        write_entry(words + TopkLayout::kFirstPosition, kPositionBits, j, kept.at[j]);
        write_entry(words + layout_.first_code(count), layout_.value_bits, j, code);
        after[kept.at[j]] = values[j] - Values::Code::value(code, scale);
    }
}

// -------------------------------------------------------------------------------------------------- decoding ----

/// Calls body(i, value) for each kept element of a tile, element i of which it is.
template <typename Body>
void TopkCodec::for_each_kept(const Tile& tile, const std::uint32_t* message, const Body& body) const {
    const std::size_t count = tile.block.count();
    const std::uint32_t* const words = message + layout_.first_word(tile.block.chunk, tile.block.index);
    const auto scale = std::bit_cast<float>(words[0]);
    for (std::size_t j = 0; j < layout_.entries(count); ++j) {
        const std::size_t i = read_entry(words + TopkLayout::kFirstPosition, kPositionBits, j) - tile.in_block;
        if (i >= tile.count) continue; // another tile's
        const std::uint32_t code = read_entry(words + layout_.first_code(count), layout_.value_bits, j);
        body(i, layout_.value_bits == kShortCode ? KeptSign::Code::value(code, scale)
                                                 : KeptInteger::Code::value(code, scale));
    }
}

/// A block that isn't finite makes every sum a NaN, also where the elements that its message names take no part.
void TopkCodec::add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const {
    if (!is_finite(tile.block, message)) std::fill_n(sums, tile.count, std::numeric_limits<float>::quiet_NaN());
    for_each_kept(tile, message, [&](std::size_t i, float value) { sums[i] += value * share; });
}

void TopkCodec::decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                            float* values) const {
    if (stores == Stores::kPastCaches) {
        decode_past_caches(tile, message, valid, values);
    } else {
        decode_cached(tile, message, valid, values);
    }
}

void TopkCodec::decode_cached(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid,
                              float* values) const {
    std::fill_n(values, tile.count, 0.0F);
    for_each_kept(tile, message, [&](std::size_t i, float value) {
        if (takes_part(valid, i)) values[i] = value;
    });
}

/// As a whole, for lines that are written in part would be read first. Not inline: only this needs the room.
[[gnu::noinline]] void TopkCodec::decode_past_caches(const Tile& tile, const std::uint32_t* message,
                                                     const std::uint32_t* valid, float* values) const {
    alignas(64) float decoded[kTileElements];
    decode_cached(tile, message, valid, decoded);
    (void)numeric().copy(decoded, tile.count, Stores::kPastCaches, values);
}

bool TopkCodec::is_finite(const Block& block, const std::uint32_t* message) const {
    return std::isfinite(std::bit_cast<float>(message[layout_.first_word(block.chunk, block.index)]));
}

// -------------------------------------------------------------------------------------------------- creation ----

Status make_topk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    const TopkKernels* const kernels = table_named(available_topk_kernels(), numeric_kernels(config.kernels).name);
    *codec = std::make_unique<TopkCodec>(kernels != nullptr ? *kernels : reference_topk_kernels(), config);
    return {};
}

} // namespace onebit
