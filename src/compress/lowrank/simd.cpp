// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations in Highway, compiled once per instruction set. The result is reference.cpp's
// bit for bit.

#include <bit>
#include <cstdint>
#include <cstring>

#include "compress/lowrank/kernels.hpp"
#include "core/simd_targets.hpp" // must come before Highway

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/lowrank/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, kTileColumns>;
using Bits = hn::RebindToUnsigned<Tag>;
using Vector = hn::Vec<Tag>;

constexpr std::size_t kWidth = hn::MaxLanes(Tag());
constexpr std::size_t kRegisters = kTileColumns / kWidth;

/// Elements of a tile, in registers. Its functions must be compiled for the vector's instruction set.
struct Tile {
    Vector part[kRegisters];

    HWY_INLINE Tile() {} // not initialized
};

/// Rows and directions that are projected at a time: few enough for their sums to stay in registers.
constexpr std::size_t kRowsProjected = kRegisters == 1 ? 4 : kRegisters == 2 ? 2 : 1;
constexpr std::size_t kDirectionsProjected = kRegisters == 1 ? 4 : 2;

/// `n` elements, then zeros.
HWY_INLINE Tile load(const float* from, std::size_t n) {
    alignas(64) float padded[kTileColumns];
    if (HWY_UNLIKELY(n < kTileColumns)) {
        std::memset(padded, 0, sizeof(padded));
        std::memcpy(padded, from, n * sizeof(float));
        from = padded;
    }
    Tile tile;
    for (std::size_t i = 0; i < kRegisters; ++i) tile.part[i] = hn::LoadU(Tag(), from + i * kWidth);
    return tile;
}

HWY_INLINE void store(const Tile& tile, float* to, std::size_t n) {
    if (HWY_LIKELY(n == kTileColumns)) {
        for (std::size_t i = 0; i < kRegisters; ++i) hn::StoreU(tile.part[i], Tag(), to + i * kWidth);
        return;
    }
    alignas(64) float padded[kTileColumns];
    for (std::size_t i = 0; i < kRegisters; ++i) hn::Store(tile.part[i], Tag(), padded + i * kWidth);
    std::memcpy(to, padded, n * sizeof(float));
}

/// x: values and errors.
HWY_INLINE Tile load_row(const RowPart& row, std::size_t c, std::size_t n) {
    Tile tile = load(row.values + c, n);
    const Tile errors = load(row.errors + c, n);
    for (std::size_t i = 0; i < kRegisters; ++i) tile.part[i] = hn::Add(tile.part[i], errors.part[i]);
    return tile;
}

/// sum + a * b.
HWY_INLINE Tile add_product(Tile sum, const Tile& a, float b) {
    const Vector factor = hn::Set(Tag(), b);
    for (std::size_t i = 0; i < kRegisters; ++i) sum.part[i] = hn::Add(sum.part[i], hn::Mul(a.part[i], factor));
    return sum;
}

/// The sum of all lanes, in the tree of numeric/lanes.hpp.
HWY_INLINE float total_of(const Tile& tile) {
    alignas(64) float lanes[kTileColumns];
    for (std::size_t i = 0; i < kRegisters; ++i) hn::Store(tile.part[i], Tag(), lanes + i * kWidth);
    const hn::FixedTag<float, 4> quarter;
    const auto lower = hn::Add(hn::Load(quarter, lanes), hn::Load(quarter, lanes + 8));
    const auto upper = hn::Add(hn::Load(quarter, lanes + 4), hn::Load(quarter, lanes + 12));
    hn::Store(hn::Add(lower, upper), quarter, lanes);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

/// Calls body(c, n) for each tile of `count` columns, n of them from number c on.
template <typename Body>
HWY_INLINE void for_each_tile(std::size_t count, const Body& body) {
    std::size_t c = 0;
    for (; c + kTileColumns <= count; c += kTileColumns) body(c, kTileColumns);
    if (c < count) body(c, count - c);
}

/// Projects kRows rows on kDirections directions, from number `first` on. Returns the largest |x|.
template <std::size_t kRows, std::size_t kDirections>
HWY_INLINE std::uint32_t project_on(const RowPart* rows, std::size_t count, const float* right, std::size_t first,
                                    std::size_t rank, float* sums) {
    const Bits b;
    auto largest = hn::Zero(b);
    Tile totals[kRows][kDirections];
    for (auto& of_row : totals) {
        for (Tile& total : of_row) {
            for (Vector& part : total.part) part = hn::Zero(Tag());
        }
    }
    for_each_tile(count, [&](std::size_t c, std::size_t n) HWY_ATTR {
        Tile x[kRows];
        for (std::size_t r = 0; r < kRows; ++r) {
            x[r] = load_row(rows[r], c, n);
            for (const Vector& part : x[r].part) {
                largest = hn::Max(largest, hn::And(hn::BitCast(b, part), hn::Set(b, 0x7fffffffU)));
            }
        }
        for (std::size_t k = 0; k < kDirections; ++k) {
            const Tile factors = load(right + c * rank + (first + k) * n, n);
            for (std::size_t r = 0; r < kRows; ++r) {
                for (std::size_t i = 0; i < kRegisters; ++i) {
                    Vector& total = totals[r][k].part[i];
                    total = hn::Add(total, hn::Mul(x[r].part[i], factors.part[i]));
                }
            }
        }
    });
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t k = 0; k < kDirections; ++k) sums[r * rank + first + k] += total_of(totals[r][k]);
    }
    return hn::GetLane(hn::MaxOfLanes(b, largest));
}

template <std::size_t kRows>
HWY_INLINE std::uint32_t project_rows(const RowPart* rows, std::size_t count, const float* right, std::size_t rank,
                                      float* sums) {
    std::uint32_t largest = 0;
    std::size_t k = 0;
    for (; k + kDirectionsProjected <= rank; k += kDirectionsProjected) {
        largest = project_on<kRows, kDirectionsProjected>(rows, count, right, k, rank, sums);
    }
    for (; k < rank; ++k) largest = project_on<kRows, 1>(rows, count, right, k, rank, sums);
    return largest;
}

float project(const RowPart* rows, std::size_t row_count, std::size_t count, const float* right, std::size_t rank,
              float* sums) {
    std::uint32_t largest = 0;
    std::size_t r = 0;
    for (; r + kRowsProjected <= row_count; r += kRowsProjected) {
        const std::uint32_t of_rows = project_rows<kRowsProjected>(rows + r, count, right, rank, sums + r * rank);
        largest = of_rows > largest ? of_rows : largest;
    }
    for (; r < row_count; ++r) {
        const std::uint32_t of_row = project_rows<1>(rows + r, count, right, rank, sums + r * rank);
        largest = of_row > largest ? of_row : largest;
    }
    return std::bit_cast<float>(largest);
}

template <std::size_t kRows>
HWY_INLINE void add_so_many(const RowPart* rows, std::size_t count, const float* left, std::size_t rank, float* right) {
    for_each_tile(count, [&](std::size_t c, std::size_t n) HWY_ATTR {
        Tile x[kRows];
        for (std::size_t r = 0; r < kRows; ++r) x[r] = load_row(rows[r], c, n);
        for (std::size_t k = 0; k < rank; ++k) {
            float* const to = right + c * rank + k * n;
            Tile sum = load(to, n);
            for (std::size_t r = 0; r < kRows; ++r) sum = add_product(sum, x[r], left[r * rank + k]);
            store(sum, to, n);
        }
    });
}

void add_rows(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
              float* right) {
    static_assert(kRowsAtOnce == 4);
    if (row_count == 4) return add_so_many<4>(rows, count, left, rank, right);
    for (std::size_t r = 0; r < row_count; ++r) add_so_many<1>(rows + r, count, left + r * rank, rank, right);
}

/// For each of kRows rows, a tile of sums of products.
template <std::size_t kRows>
HWY_INLINE void multiply(const float* left, std::size_t rank, const float* right, std::size_t n, Tile* sums) {
    for (std::size_t k = 0; k < rank; ++k) {
        const Tile factors = load(right + k * n, n);
        for (std::size_t r = 0; r < kRows; ++r) {
            const Vector factor = hn::Set(Tag(), left[r * rank + k]);
            for (std::size_t i = 0; i < kRegisters; ++i) {
                const Vector product = hn::Mul(factors.part[i], factor);
                sums[r].part[i] = k == 0 ? product : hn::Add(sums[r].part[i], product);
            }
        }
    }
}

template <std::size_t kRows>
HWY_INLINE void expand_so_many(const RowPart* rows, std::size_t count, const float* left, std::size_t rank,
                               const float* own, const float* mean, float factor, const ExpandedRow* expanded) {
    for_each_tile(count, [&](std::size_t c, std::size_t n) HWY_ATTR {
        Tile sums[kRows];
        multiply<kRows>(left, rank, own + c * rank, n, sums);
        for (std::size_t r = 0; r < kRows; ++r) {
            Tile x = load_row(rows[r], c, n);
            for (std::size_t i = 0; i < kRegisters; ++i) x.part[i] = hn::Sub(x.part[i], sums[r].part[i]);
            store(x, expanded[r].errors + c, n);
        }
        multiply<kRows>(left, rank, mean + c * rank, n, sums);
        for (std::size_t r = 0; r < kRows; ++r) {
            for (Vector& part : sums[r].part) part = hn::Mul(part, hn::Set(Tag(), factor));
            store(sums[r], expanded[r].results + c, n);
        }
    });
}

void expand(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
            const float* own, const float* mean, float factor, const ExpandedRow* expanded) {
    static_assert(kRowsAtOnce == 4);
    if (row_count == 4) return expand_so_many<4>(rows, count, left, rank, own, mean, factor, expanded);
    for (std::size_t r = 0; r < row_count; ++r) {
        expand_so_many<1>(rows + r, count, left + r * rank, rank, own, mean, factor, expanded + r);
    }
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
