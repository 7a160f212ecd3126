// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/topk/topk_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "compress/grouped/integer.hpp"
#include "core/kernel_tables.hpp"

namespace onebit {
namespace {

/// An element that is kept.
struct Kept {
    std::uint32_t position; ///< in its block
    float value;            ///< corrected
};

/// How a kept value is coded: in 8 bits as an integer, in 2 as its sign.
struct KeptInteger {
    using Code = Integer<8>;
    static float scale_of(float largest, std::span<const Kept>) { return Code::scale_of(largest); }
    explicit KeptInteger(float scale) : code_of(scale) {}
    std::uint32_t code(float c) const { return code_of.code(c); }

    Code code_of;
};
struct KeptSign {
    using Code = Integer<2>;
    static float scale_of(float largest, std::span<const Kept> kept) {
        const auto is_zero = [](const Kept& one) { return one.value == 0; };
        const auto nonzeros = static_cast<std::ptrdiff_t>(kept.size()) - std::ranges::count_if(kept, is_zero);
        const float share = nonzeros == 0 ? 0 : 1 / static_cast<float>(nonzeros);
        float mean = 0;
        for (const Kept& one : kept) mean += std::fabs(one.value) * share;
        return std::min(mean, largest);
    }
    explicit KeptSign(float) {}
    static std::uint32_t code(float c) { return c > 0 ? 1 : c < 0 ? 3 : 0; }
};

/// Calls body(i) for each bit i that is 1.
template <typename Body>
void for_each_bit(const std::uint32_t* words, std::size_t count, const Body& body) {
    for (std::size_t w = 0; w * kRunElements < count; ++w) {
        for (std::uint32_t left = words[w]; left != 0; left &= left - 1) {
            body(w * kRunElements + static_cast<std::size_t>(std::countr_zero(left)));
        }
    }
}

} // namespace

TopkCodec::TopkCodec(const TopkKernels& kernels, const CodecConfig& config)
    : BlockwiseCodec(kernels.name, config.threads),
      kernels_(kernels),
      layout_{config.topk.kept, config.topk.value_bits} {}

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

    std::uint32_t of_runs[kBlockRuns];
    const std::uint32_t largest = kernels_.find_largest(after, count, of_runs);
    if (!std::isfinite(std::bit_cast<float>(largest))) {
        words[0] = largest;
        return;
    }
    std::uint32_t chosen[kBlockRuns];
    choose(after, count, of_runs, chosen);
    if (layout_.value_bits == KeptInteger::Code::kBits) {
        encode_kept<KeptInteger>(count, largest, chosen, after, words);
    } else {
        encode_kept<KeptSign>(count, largest, chosen, after, words);
    }
}

/// Bit i of word w of `chosen`: whether element 32 w + i is one of the largest, of equal ones an earlier one.
void TopkCodec::choose(const float* corrected, std::size_t count, const std::uint32_t* of_runs,
                       std::uint32_t* chosen) const {
    const std::size_t entries = layout_.entries(count);
    const auto last = static_cast<std::ptrdiff_t>(entries) - 1;

    // So many elements at least are as large as that many runs' largest: a bound that few others reach.
    const std::size_t runs = ceil_divide(count, kRunElements);
    std::uint32_t sorted[kBlockRuns] = {};
    std::copy_n(of_runs, runs, sorted);
    std::nth_element(sorted, sorted + last, sorted + runs, std::greater<>());
    kernels_.find_at_least(corrected, count, of_runs, sorted[last], chosen);

    // Of those that reach it, the smallest that is kept.
    float candidates[kBlockElements];
    std::size_t found = 0;
    for_each_bit(chosen, count, [&](std::size_t i) { candidates[found++] = std::fabs(corrected[i]); });
    if (found <= entries) return;
    std::nth_element(candidates, candidates + last, candidates + found, std::greater<>());
    const float smallest = candidates[last];
    std::ptrdiff_t equals = last + 1 - std::count_if(candidates, candidates + last, [=](float c) { return c > smallest; });

    for_each_bit(chosen, count, [&](std::size_t i) {
        const float magnitude = std::fabs(corrected[i]);
        const bool keep = magnitude > smallest || (magnitude == smallest && equals-- > 0);
        if (!keep) chosen[i / kRunElements] &= ~(1U << i % kRunElements);
    });
}

/// Writes scale, positions and codes, and takes what they stand for off the kept elements in `after`.
template <typename Values>
void TopkCodec::encode_kept(std::size_t count, std::uint32_t largest, const std::uint32_t* chosen, float* after,
                            std::uint32_t* words) const {
    Kept kept[kBlockRuns];
    std::size_t entries = 0;
    for_each_bit(chosen, count, [&](std::size_t i) { kept[entries++] = {static_cast<std::uint32_t>(i), after[i]}; });

    const float scale = Values::scale_of(std::bit_cast<float>(largest), {kept, entries});
    const Values code_of(scale);
    words[0] = std::bit_cast<std::uint32_t>(scale);
    for (std::size_t j = 0; j < entries; ++j) {
        const std::uint32_t code = code_of.code(kept[j].value);
        write_entry(words + layout_.first_position(), kPositionBits, j, kept[j].position);
        write_entry(words + layout_.first_code(count), layout_.value_bits, j, code);
        after[kept[j].position] = kept[j].value - Values::Code::value(code, scale);
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
        const std::size_t i = read_entry(words + layout_.first_position(), kPositionBits, j) - tile.in_block;
        if (i >= tile.count) continue; // another tile's
        const std::uint32_t code = read_entry(words + layout_.first_code(count), layout_.value_bits, j);
        body(i, layout_.value_bits == 2 ? Integer<2>::value(code, scale) : Integer<8>::value(code, scale));
    }
}

void TopkCodec::add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const {
    for_each_kept(tile, message, [&](std::size_t i, float value) { sums[i] += value * share; });
}

void TopkCodec::decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores,
                            float* values) const {
    std::fill_n(values, tile.count, 0.0F);
    for_each_kept(tile, message, [&](std::size_t i, float value) {
        if (takes_part(valid, i)) values[i] = value;
    });
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
