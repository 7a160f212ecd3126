// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations in Highway, compiled once per instruction set. The result is reference.cpp's
// bit for bit.

#include <bit>
#include <cstring>

#include "compress/lowrank/kernels.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/lowrank/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"

/// So many products at a time, whose lanes stay in registers.
constexpr std::size_t kProducts = kRegisters <= 2 ? 4 : kRegisters <= 4 ? 2 : 1;

template <std::size_t kCount>
HWY_INLINE float project_on(const RowPart& row, std::size_t count, const float* columns, std::size_t stride,
                            float* sums) {
    const BitsTag b;
    Bits largest = hn::Zero(b);
    Group lanes[kCount];
    for (Group& sum : lanes) {
        for (std::size_t r = 0; r < kRegisters; ++r) sum[r] = hn::Zero(Tag());
    }
    for (std::size_t g = 0; g * kLanes < count; ++g) {
        Group part = load_group(row.values, g, count);
        const Group error = load_group(row.errors, g, count);
        for (std::size_t r = 0; r < kRegisters; ++r) {
            part[r] = hn::Add(part[r], error[r]);
            largest = hn::Max(largest, magnitudes_of(part[r]));
        }
        for (std::size_t k = 0; k < kCount; ++k) {
            const Group column = load_group(columns + k * stride, g, count);
            for (std::size_t r = 0; r < kRegisters; ++r) {
                lanes[k][r] = hn::Add(lanes[k][r], hn::Mul(part[r], column[r]));
            }
        }
    }
    for (std::size_t k = 0; k < kCount; ++k) sums[k] += total_of(lanes[k]);
    return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(b, largest)));
}

float project(const RowPart& row, std::size_t count, const float* columns, std::size_t stride, std::size_t rank,
              float* sums) {
    float largest = 0;
    std::size_t k = 0;
    for (; k + kProducts <= rank; k += kProducts) {
        largest = project_on<kProducts>(row, count, columns + k * stride, stride, sums + k);
    }
    for (; k < rank; ++k) largest = project_on<1>(row, count, columns + k * stride, stride, sums + k);
    return largest;
}

/// Calls body(c, n) for each vector's worth of `count` elements, n of them from number c on.
template <typename Body>
HWY_INLINE void for_each_vector(std::size_t count, const Body& body) {
    std::size_t c = 0;
    for (; c + kVectorLanes <= count; c += kVectorLanes) body(c, kVectorLanes);
    if (c < count) body(c, count - c);
}

HWY_INLINE Vector load(const float* values, std::size_t n) {
    if (HWY_LIKELY(n == kVectorLanes)) return hn::LoadU(Tag(), values);
    alignas(64) float padded[kVectorLanes] = {};
    std::memcpy(padded, values, n * sizeof(float));
    return hn::Load(Tag(), padded);
}

HWY_INLINE void store(Vector v, float* to, std::size_t n) {
    if (HWY_LIKELY(n == kVectorLanes)) return hn::StoreU(v, Tag(), to);
    alignas(64) float padded[kVectorLanes];
    hn::Store(v, Tag(), padded);
    std::memcpy(to, padded, n * sizeof(float));
}

HWY_INLINE Vector load_row(const RowPart& row, std::size_t c, std::size_t n) {
    prefetch_ahead(row.values + c);
    prefetch_ahead(row.errors + c);
    return hn::Add(load(row.values + c, n), load(row.errors + c, n));
}

template <std::size_t kRows>
HWY_INLINE void add_so_many(const RowPart* rows, std::size_t count, const float* left, std::size_t rank,
                            std::size_t stride, float* sums) {
    const Tag d;
    for_each_vector(count, [&](std::size_t c, std::size_t n) HWY_ATTR {
        Vector values[kRows];
        for (std::size_t r = 0; r < kRows; ++r) values[r] = load_row(rows[r], c, n);
        for (std::size_t k = 0; k < rank; ++k) {
            float* const to = sums + k * stride + c;
            Vector sum = load(to, n);
            for (std::size_t r = 0; r < kRows; ++r) {
                sum = hn::Add(sum, hn::Mul(values[r], hn::Set(d, left[r * rank + k])));
            }
            store(sum, to, n);
        }
    });
}

void add_rows(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
              std::size_t stride, float* sums) {
    static_assert(kRowsAtOnce == 4);
    if (row_count == 4) return add_so_many<4>(rows, count, left, rank, stride, sums);
    for (std::size_t r = 0; r < row_count; ++r) add_so_many<1>(rows + r, count, left + r * rank, rank, stride, sums);
}

HWY_INLINE Vector product(const float* left, std::size_t rank, std::size_t stride, const float* right, std::size_t n) {
    const Tag d;
    Vector sum = hn::Mul(hn::Set(d, left[0]), load(right, n));
    for (std::size_t k = 1; k < rank; ++k)
        sum = hn::Add(sum, hn::Mul(hn::Set(d, left[k]), load(right + k * stride, n)));
    return sum;
}

void expand(const RowPart& row, std::size_t count, const float* left, std::size_t rank, std::size_t stride,
            const float* own, const float* mean, float factor, float* results, float* errors) {
    const Tag d;
    for_each_vector(count, [&](std::size_t c, std::size_t n) HWY_ATTR {
        prefetch_ahead(results + c);
        const Vector values = load_row(row, c, n);
        store(hn::Sub(values, product(left, rank, stride, own + c, n)), errors + c, n);
        store(hn::Mul(hn::Set(d, factor), product(left, rank, stride, mean + c, n)), results + c, n);
    });
}

constexpr LowRankKernels make_table(const char* name) {
    return {name, project, add_rows, expand};
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(LowRankKernels, available_low_rank_kernels, reference_low_rank_kernels)

} // namespace onebit
#endif // HWY_ONCE
