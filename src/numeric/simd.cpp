// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels on plain values in Highway, compiled once per instruction set. The result is reference.cpp's bit for bit:
// the same operations in the same order, no fused multiply-add.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/kernels.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"

using Bits = hn::Vec<BitsTag>;

/// Of magnitudes, as integers, which are in the same order: infinity and every NaN come after all that is finite.
HWY_INLINE Bits larger(Bits largest, Vector values) {
    const BitsTag d;
    return hn::Max(largest, hn::And(hn::BitCast(d, values), hn::Set(d, 0x7fffffffU)));
}
HWY_INLINE bool is_within(Bits largest, float limit) {
    return hn::GetLane(hn::MaxOfLanes(BitsTag(), largest)) <= std::bit_cast<std::uint32_t>(limit);
}
HWY_INLINE bool is_within(float value, float limit) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) <= std::bit_cast<std::uint32_t>(limit);
}

bool all_within(const float* values, std::size_t count, float limit) {
    // Four parts side by side: a core keeps more of memory busy with four streams than with one.
    constexpr std::size_t kParts = 4;
    Bits largest[kParts];
    for (Bits& v : largest) v = hn::Zero(BitsTag());
    const std::size_t part = count / (kParts * kLanes) * kLanes;
    for (std::size_t i = 0; i < part; i += kLanes) {
        for (std::size_t p = 0; p < kParts; ++p) {
            const float* const group = values + p * part + i;
            prefetch_group_ahead(group);
            for (std::size_t k = 0; k < kRegisters; ++k) {
                largest[p] = larger(largest[p], hn::LoadU(Tag(), group + k * kVectorLanes));
            }
        }
    }
    bool within = true;
    for (const Bits& v : largest) within = is_within(v, limit) && within;
    for (std::size_t i = kParts * part; i < count; ++i) within = is_within(values[i], limit) && within;
    return within;
}

template <Stores kStores>
HWY_INLINE bool copy_to(const float* values, std::size_t count, float* to) {
    const Tag d;
    Bits largest = hn::Zero(BitsTag());
    const std::size_t whole = count / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
        prefetch_group_ahead(values + i);
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector v = hn::LoadU(d, values + i + k * kVectorLanes);
            largest = larger(largest, v);
            store<kStores>(v, to + i + k * kVectorLanes);
        }
    }
    bool finite = is_within(largest, FLT_MAX);
    for (std::size_t i = whole; i < count; ++i) {
        to[i] = values[i];
        finite = is_within(values[i], FLT_MAX) && finite;
    }
    return finite;
}

bool copy(const float* values, std::size_t count, Stores stores, float* to) {
    return stores == Stores::kPastCaches && is_aligned(to) ? copy_to<Stores::kPastCaches>(values, count, to)
                                                           : copy_to<Stores::kCached>(values, count, to);
}

template <Stores kStores, Stores kAlsoStores>
HWY_INLINE void mean_to(const float* const* parts, std::size_t part_count, std::size_t first, float share,
                        std::size_t count, float* to, float* also) {
    const Vector factor = hn::Set(Tag(), share);
    const std::size_t whole = count / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
        for (std::size_t p = 0; p < part_count; ++p) prefetch_group_ahead(parts[p] + first + i);
        Group means;
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const std::size_t at = first + i + k * kVectorLanes;
            Vector v = hn::LoadU(Tag(), parts[0] + at);
            for (std::size_t p = 1; p < part_count; ++p) v = hn::Add(v, hn::LoadU(Tag(), parts[p] + at));
            means[k] = hn::Mul(v, factor);
        }
        if (HWY_UNLIKELY(!all_finite(means))) {
            means = checked_means(means, parts, part_count, first + i, kLanes, share);
        }
        for (std::size_t k = 0; k < kRegisters; ++k) {
            store<kStores>(means[k], to + i + k * kVectorLanes);
            store<kAlsoStores>(means[k], also + i + k * kVectorLanes);
        }
    }
    reference_numeric_kernels().mean(parts, part_count, first + whole, share, count - whole, Stores::kCached,
                                     to + whole, Stores::kCached, also + whole);
}

void mean(const float* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
          Stores stores, float* to, Stores also_stores, float* also) {
    constexpr Stores kCached = Stores::kCached;
    constexpr Stores kPastCaches = Stores::kPastCaches;
    const bool past = stores == kPastCaches && is_aligned(to);
    const bool also_past = also_stores == kPastCaches && is_aligned(also);
    if (past && also_past) return mean_to<kPastCaches, kPastCaches>(parts, part_count, first, share, count, to, also);
    if (past) return mean_to<kPastCaches, kCached>(parts, part_count, first, share, count, to, also);
    if (also_past) return mean_to<kCached, kPastCaches>(parts, part_count, first, share, count, to, also);
    mean_to<kCached, kCached>(parts, part_count, first, share, count, to, also);
}

constexpr NumericKernels make_table(const char* name) {
    return {
        name,
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) kernel,
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    };
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(NumericKernels, available_numeric_kernels, reference_numeric_kernels)

} // namespace onebit
#endif // HWY_ONCE
