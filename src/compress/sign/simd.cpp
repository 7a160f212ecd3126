// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The sign codec's kernels in Highway, compiled once per instruction set. Everything is done in groups of 32 elements:
// one word of signs, one element for each of the 32 lanes of a reproducible sum, a whole number of vector registers on
// every ISA. The result is reference.cpp's bit for bit: the same operations in the same order, no fused multiply-add.

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "compress/sign/kernels.hpp"
#include "core/partition.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/mean.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/sign/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"

constexpr std::size_t kBlockSignBytes = kBlockElements / 8;

/// Writes the four bytes of sign bits of a group; the store may touch up to seven bytes more.
HWY_INLINE void store_signs(const Group& group, std::uint8_t* bytes) {
    const Tag d;
    const Vector zero = hn::Zero(d);
    if constexpr (kVectorLanes >= 8) {
        for (std::size_t k = 0; k < kRegisters; ++k) {
            hn::StoreMaskBits(d, hn::Ge(group[k], zero), bytes + k * kVectorLanes / 8);
        }
    } else { // four lanes make half a byte
        for (std::size_t k = 0; k < kRegisters; k += 2) {
            std::uint8_t low[8];
            std::uint8_t high[8];
            hn::StoreMaskBits(d, hn::Ge(group[k], zero), low);
            hn::StoreMaskBits(d, hn::Ge(group[k + 1], zero), high);
            bytes[k / 2] = static_cast<std::uint8_t>((low[0] & 15U) | (high[0] & 15U) << 4);
        }
    }
}

/// Corrects the values by the error of the last message, stores them and adds them to the sum. All encoders share this
/// step. `group` holds the values, then the corrected values to encode.
template <bool kMasked, onebit_scale_t kScale, Stores kStores>
HWY_INLINE void correct(Group& group, const float* before, Vector old_scale, float* corrected, std::uint32_t valid,
                        Group& sum) {
    const Tag d;
    const Vector zero = hn::Zero(d);
    const Vector minus_old_scale = hn::Neg(old_scale);
    for (std::size_t k = 0; k < kRegisters; ++k) {
        const Vector old = hn::Load(d, before + k * kVectorLanes);
        const Vector error = hn::Sub(old, hn::IfThenElse(hn::Ge(old, zero), old_scale, minus_old_scale));
        Vector c = hn::Add(group[k], error);
        if constexpr (kMasked) c = hn::IfThenElseZero(mask_of(valid, k), c);
        store<kStores>(c, corrected + k * kVectorLanes);
        sum[k] = hn::Add(sum[k], kScale == ONEBIT_SCALE_L2 ? hn::Mul(c, c) : hn::Abs(c));
        group[k] = c;
    }
}

/// Runs over the block's groups: `load(group_index)` gives the values to be corrected and encoded. The last group of a
/// short block goes through a padded copy in which the padding is masked.
template <bool kMasked, onebit_scale_t kScale, Stores kStores, typename Load>
HWY_INLINE float encode_groups(const Load& load, const float* before, float old_scale, float* corrected,
                               const std::uint32_t* valid, std::size_t count, std::uint32_t* bits) {
    const Tag d;
    const Vector scale = hn::Set(d, old_scale);
    Group sum;
    for (Vector& s : sum.registers) s = hn::Zero(d);
    std::uint8_t signs[kBlockSignBytes + 8];

    const std::size_t whole = count / kLanes;
    for (std::size_t g = 0; g < whole; ++g) {
        prefetch_group_ahead(before + g * kLanes);
        if (kStores == Stores::kCached && corrected != before) {
            prefetch_group_ahead(corrected + g * kLanes); // without this: twice the time
        }
        Group group = load(g);
        correct<kMasked, kScale, kStores>(group, before + g * kLanes, scale, corrected + g * kLanes,
                                          kMasked ? valid[g] : 0, sum);
        store_signs(group, signs + g * 4);
    }
    std::memcpy(bits, signs, whole * 4);

    if (const std::size_t rest = count % kLanes; rest > 0) {
        const std::uint32_t present = (1U << rest) - 1;
        alignas(64) float padded[kLanes] = {};
        std::memcpy(padded, before + whole * kLanes, rest * sizeof(float));
        Group group = load(whole);
        correct<true, kScale, Stores::kCached>(group, padded, scale, padded, kMasked ? valid[whole] & present : present,
                                               sum);
        std::memcpy(corrected + whole * kLanes, padded, rest * sizeof(float));
        store_signs(group, signs);
        std::uint32_t word = 0;
        std::memcpy(&word, signs, sizeof(word));
        bits[whole] = word & present;
    }
    return total_of(sum);
}

/// encode_groups for the mask, the scale and the stores asked for.
template <onebit_scale_t kScale, typename Load>
HWY_INLINE float encode_scaled(const Load& load, const float* before, float old_scale, float* corrected, Stores stores,
                               const std::uint32_t* valid, std::size_t count, std::uint32_t* bits) {
    constexpr Stores kCached = Stores::kCached;
    constexpr Stores kPast = Stores::kPastCaches;
    if (valid != nullptr) {
        return encode_groups<true, kScale, kCached>(load, before, old_scale, corrected, valid, count, bits);
    }
    if (stores == kPast && corrected != before) {
        return encode_groups<false, kScale, kPast>(load, before, old_scale, corrected, valid, count, bits);
    }
    return encode_groups<false, kScale, kCached>(load, before, old_scale, corrected, valid, count, bits);
}
template <typename Load>
HWY_INLINE float encode_with(const Load& load, const float* before, float old_scale, float* corrected, Stores stores,
                             const std::uint32_t* valid, std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    constexpr onebit_scale_t kL1 = ONEBIT_SCALE_L1;
    constexpr onebit_scale_t kL2 = ONEBIT_SCALE_L2;
    return scale == kL2 ? encode_scaled<kL2>(load, before, old_scale, corrected, stores, valid, count, bits)
                        : encode_scaled<kL1>(load, before, old_scale, corrected, stores, valid, count, bits);
}

float encode(const float* values, const float* before, float old_scale, float* corrected, Stores stores,
             const std::uint32_t* valid, std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    const auto load = [&](std::size_t g) HWY_ATTR { return load_group(values, g, count); };
    return encode_with(load, before, old_scale, corrected, stores, valid, count, scale, bits);
}

float blend_encode(const float* inputs, const Blend& blend, const std::uint32_t* last_bits, float last_scale,
                   const float* before, float old_scale, float* corrected, Stores stores, const std::uint32_t* valid,
                   std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    const Tag d;
    const Vector plus = hn::Set(d, blend.keep * last_scale);
    const Vector minus = hn::Neg(plus);
    const Vector take = hn::Set(d, blend.take);
    const Vector factor = hn::Set(d, blend.factor);
    // The block's signs are written only when all are known: they may overwrite the words read here.
    const auto blend_in = [&](Group& group, std::size_t g) HWY_ATTR {
        const std::uint32_t word = last_bits[g];
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector kept = hn::IfThenElse(mask_of(word, k), plus, minus);
            group[k] = hn::Add(kept, hn::Mul(take, group[k]));
        }
    };
    const auto load = [&](std::size_t g) HWY_ATTR {
        Group group = load_group(inputs, g, count);
        for (std::size_t k = 0; k < kRegisters; ++k) group[k] = hn::Mul(group[k], factor);
        blend_in(group, g);
        return group;
    };
    if (blend.weights == nullptr) {
        return encode_with(load, before, old_scale, corrected, stores, valid, count, scale, bits);
    }
    const Vector bound = hn::Set(d, blend.bound);
    const Vector least = hn::Neg(bound);
    const auto load_weighted = [&](std::size_t g) HWY_ATTR {
        Group group = load_group(inputs, g, count);
        const Group weights = load_group(blend.weights, g, count);
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector weighted = hn::Mul(hn::Mul(group[k], factor), weights[k]);
            group[k] = hn::Min(bound, hn::Max(least, weighted));
        }
        blend_in(group, g);
        return group;
    };
    return encode_with(load_weighted, before, old_scale, corrected, stores, valid, count, scale, bits);
}

float mean_encode(const float* const* parts, std::size_t part_count, float share, const float* before, float old_scale,
                  float* corrected, Stores stores, const std::uint32_t* valid, std::size_t count, onebit_scale_t scale,
                  std::uint32_t* bits) {
    const Vector factor = hn::Set(Tag(), share);
    const auto load = [&](std::size_t g) HWY_ATTR {
        Group group = load_group(parts[0], g, count);
        for (std::size_t p = 1; p < part_count; ++p) {
            const Group part = load_group(parts[p], g, count);
            for (std::size_t k = 0; k < kRegisters; ++k) group[k] = hn::Add(group[k], part[k]);
        }
        for (Vector& v : group.registers) v = hn::Mul(v, factor);
        if (HWY_LIKELY(all_finite(group))) return group;
        return checked_means(group, parts, part_count, g * kLanes, std::min(kLanes, count - g * kLanes), share);
    };
    return encode_with(load, before, old_scale, corrected, stores, valid, count, scale, bits);
}

/// What the ranks' signs of a block stand for, times `share`.
class Magnitudes {
  public:
    Magnitudes(const std::uint32_t* const* messages, std::size_t ranks, std::size_t scale_word, float share)
        : messages_(messages), ranks_(ranks), scale_word_(scale_word), share_(share) {
        for (std::size_t r = 0; r < std::min(ranks, kHoistedRanks); ++r) hoisted_[r] = magnitude_of(r);
    }

    /// The sum over the ranks, in rank order, of the elements that have this word of the messages.
    HWY_INLINE Group average(std::size_t word_index) const {
        const Tag d;
        Group group;
        for (Vector& v : group.registers) v = hn::Zero(d);
        for (std::size_t r = 0; r < ranks_; ++r) {
            const std::uint32_t word = messages_[r][word_index];
            const Vector plus = hn::Set(d, HWY_LIKELY(r < kHoistedRanks) ? hoisted_[r] : magnitude_of(r));
            const Vector minus = hn::Neg(plus);
            for (std::size_t k = 0; k < kRegisters; ++k) {
                group[k] = hn::Add(group[k], hn::IfThenElse(mask_of(word, k), plus, minus));
            }
        }
        return group;
    }

  private:
    HWY_INLINE float magnitude_of(std::size_t r) const {
        return std::bit_cast<float>(messages_[r][scale_word_]) * share_;
    }

    // Worked out once per block for the usual number of ranks; a broadcast from memory then costs the loop nothing.
    static constexpr std::size_t kHoistedRanks = 64;
    const std::uint32_t* const* messages_;
    std::size_t ranks_;
    std::size_t scale_word_;
    float share_;
    float hoisted_[kHoistedRanks];
};

float average_encode(const std::uint32_t* const* messages, std::size_t ranks, std::size_t first_word,
                     std::size_t scale_word, float share, const float* before, float old_scale, float* corrected,
                     Stores stores, const std::uint32_t* valid, std::size_t count, onebit_scale_t scale,
                     std::uint32_t* bits) {
    const Magnitudes magnitudes(messages, ranks, scale_word, share);
    const auto load = [&](std::size_t g) HWY_ATTR { return magnitudes.average(first_word + g); };
    return encode_with(load, before, old_scale, corrected, stores, valid, count, scale, bits);
}

template <Stores kStores>
HWY_INLINE void average_groups(const Magnitudes& magnitudes, std::size_t first_word, std::size_t groups,
                               float* HWY_RESTRICT values) {
    for (std::size_t g = 0; g < groups; ++g) {
        if constexpr (kStores == Stores::kCached) prefetch_group_ahead(values + g * kLanes);
        const Group group = magnitudes.average(first_word + g);
        for (std::size_t k = 0; k < kRegisters; ++k) store<kStores>(group[k], values + g * kLanes + k * kVectorLanes);
    }
}

void average(const std::uint32_t* const* messages, std::size_t ranks, std::size_t first_word, std::size_t scale_word,
             float share, std::size_t count, Stores stores, float* values) {
    const Magnitudes magnitudes(messages, ranks, scale_word, share);
    const std::size_t whole = count / kLanes;
    if (stores == Stores::kPastCaches && is_aligned(values)) {
        average_groups<Stores::kPastCaches>(magnitudes, first_word, whole, values);
    } else {
        average_groups<Stores::kCached>(magnitudes, first_word, whole, values);
    }
    if (const std::size_t rest = count % kLanes; rest > 0) {
        alignas(64) float padded[kLanes];
        average_groups<Stores::kCached>(magnitudes, first_word + whole, 1, padded);
        std::memcpy(values + whole * kLanes, padded, rest * sizeof(float));
    }
}

/// Stores past the caches want `values` to be aligned.
template <bool kMasked, Stores kStores>
HWY_INLINE void decode_groups(const std::uint32_t* bits, float scale, const std::uint32_t* valid, std::size_t groups,
                              float* HWY_RESTRICT values) {
    const Tag d;
    const Vector plus = hn::Set(d, scale);
    const Vector minus = hn::Neg(plus);
    for (std::size_t g = 0; g < groups; ++g) {
        if constexpr (kStores == Stores::kCached) prefetch_group_ahead(values + g * kLanes);
        for (std::size_t k = 0; k < kRegisters; ++k) {
            Vector v = hn::IfThenElse(mask_of(bits[g], k), plus, minus);
            if constexpr (kMasked) v = hn::IfThenElseZero(mask_of(valid[g], k), v);
            store<kStores>(v, values + g * kLanes + k * kVectorLanes);
        }
    }
}

void decode(const std::uint32_t* bits, float scale, const std::uint32_t* valid, std::size_t count, Stores stores,
            float* values) {
    constexpr Stores kCached = Stores::kCached;
    constexpr Stores kPastCaches = Stores::kPastCaches;
    const std::size_t whole = count / kLanes;
    if (stores == kPastCaches && is_aligned(values)) {
        valid == nullptr ? decode_groups<false, kPastCaches>(bits, scale, valid, whole, values)
                         : decode_groups<true, kPastCaches>(bits, scale, valid, whole, values);
    } else {
        valid == nullptr ? decode_groups<false, kCached>(bits, scale, valid, whole, values)
                         : decode_groups<true, kCached>(bits, scale, valid, whole, values);
    }
    if (const std::size_t rest = count % kLanes; rest > 0) {
        alignas(64) float padded[kLanes];
        const std::uint32_t all = ~0U;
        decode_groups<true, kCached>(bits + whole, scale, valid == nullptr ? &all : valid + whole, 1, padded);
        std::memcpy(values + whole * kLanes, padded, rest * sizeof(float));
    }
}

constexpr SignKernels make_table(const char* name) {
    return {
        name,
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) kernel,
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
    };
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(SignKernels, available_sign_kernels, reference_sign_kernels)

} // namespace onebit
#endif // HWY_ONCE
