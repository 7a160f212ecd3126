// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of sparse codes in Highway, compiled once per instruction set. The result is reference.cpp's bit for bit.

#include <algorithm>
#include <bit>
#include <cstring>

#include "compress/sparse/kernels.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/sparse/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"

static_assert(kRunElements == kLanes);

template <bool kMasked>
HWY_INLINE void correct_runs(const float* values, const float* before, float* after, const std::uint32_t* valid,
                             std::size_t count) {
    for (std::size_t r = 0; r * kLanes < count; ++r) {
        Group c = load_group(values, r, count);
        const Group error = load_group(before, r, count);
        if (after != before) prefetch_group_ahead(after + r * kLanes);
        for (std::size_t k = 0; k < kRegisters; ++k) {
            c[k] = hn::Add(c[k], error[k]);
            if constexpr (kMasked) c[k] = hn::IfThenElseZero(mask_of(valid[r], k), c[k]);
        }
        store_group<Stores::kCached>(c, r, count, after);
    }
}

void correct(const float* values, const float* before, float* after, const std::uint32_t* valid, std::size_t count) {
    valid != nullptr ? correct_runs<true>(values, before, after, valid, count)
                     : correct_runs<false>(values, before, after, valid, count);
}

float find_largest(const float* values, std::size_t count, float* of_runs) {
    const BitsTag b;
    Bits largest = hn::Zero(b);
    for (std::size_t r = 0; r * kLanes < count; ++r) {
        const Group run = load_group(values, r, count);
        Bits of_run = magnitudes_of(run[0]);
        for (std::size_t k = 1; k < kRegisters; ++k) of_run = hn::Max(of_run, magnitudes_of(run[k]));
        largest = hn::Max(largest, of_run);
        of_runs[r] = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(b, of_run)));
    }
    return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(b, largest)));
}

/// Bit i: whether lane i of the run has at least this magnitude.
HWY_INLINE std::uint32_t at_least(const Group& run, Bits bound) {
    const BitsTag b;
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < kRegisters; ++k) {
        std::uint8_t bits[8] = {}; // StoreMaskBits may write so many
        hn::StoreMaskBits(b, hn::Not(hn::Lt(magnitudes_of(run[k]), bound)), bits);
        std::uint32_t of_register = 0;
        std::memcpy(&of_register, bits, sizeof(of_register));
        word |= of_register << k * kVectorLanes;
    }
    return word;
}

/// Most runs have none, one or two. At least two are always written: a branch would be unpredictable.
std::size_t find_at_least(const float* values, std::size_t count, const float* of_runs, float bound,
                          Positions* positions) {
    constexpr int kUnasked = 2;
    const Bits bounds = hn::Set(BitsTag(), std::bit_cast<std::uint32_t>(bound));
    std::size_t total = 0;
    for (std::size_t r = 0; r * kLanes < count; ++r) {
        if (std::bit_cast<std::uint32_t>(of_runs[r]) < std::bit_cast<std::uint32_t>(bound)) continue;
        std::uint32_t left = at_least(load_group(values, r, count), bounds);
        if (count - r * kLanes < kLanes) left &= (1U << count % kLanes) - 1; // padding reaches a bound of 0
        const int found = std::popcount(left);
        if (total < Positions::kMost) {
            for (int j = 0; j < std::max(found, kUnasked); ++j) {
                const auto lane = static_cast<std::size_t>(std::countr_zero(left));
                positions->at[total + static_cast<std::size_t>(j)] = static_cast<std::uint16_t>(r * kLanes + lane);
                left &= left - 1;
            }
        }
        total += static_cast<std::size_t>(found);
    }
    return total;
}

float find_kth(const float* values, std::size_t count, std::size_t k) {
    const Tag d;
    const BitsTag b;
    const std::size_t whole = count / kVectorLanes * kVectorLanes;
    std::uint32_t kth = 0;
    for (std::uint32_t bit = 1U << 30; bit != 0; bit >>= 1) {
        const std::uint32_t bound = kth | bit;
        const Bits bounds = hn::Set(b, bound);
        Bits below = hn::Zero(b); // counts by lane; a mask's lanes are 0 or -1
        for (std::size_t i = 0; i < whole; i += kVectorLanes) {
            const Bits magnitudes = magnitudes_of(hn::LoadU(d, values + i));
            below = hn::Sub(below, hn::VecFromMask(b, hn::Lt(magnitudes, bounds)));
        }
        std::size_t reach = whole - hn::GetLane(hn::SumOfLanes(b, below));
        for (std::size_t i = whole; i < count; ++i) {
            if ((std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU) >= bound) ++reach;
        }
        if (reach >= k) kth = bound;
    }
    return std::bit_cast<float>(kth);
}

constexpr SparseKernels make_table(const char* name) {
    return {name, correct, find_largest, find_at_least, find_kth};
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(SparseKernels, available_sparse_kernels, reference_sparse_kernels)

} // namespace onebit
#endif // HWY_ONCE
