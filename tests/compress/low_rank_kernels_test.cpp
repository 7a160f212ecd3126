// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations: every instruction set that this machine has against the scalar reference, the
// same bits.

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "compress/lowrank/kernels.hpp"
#include "numeric/awkward_values.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

constexpr std::size_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 511, 1000, 1023, 1024};
constexpr std::size_t kRanks[] = {1, 2, 3, 4, 5, 8, 13};
constexpr float kGuard = 77;

using Floats = std::vector<float>;

/// The same bits; all NaNs count as equal.
bool same(const Floats& a, const Floats& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
        if (!both_nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
    }
    return true;
}

/// Values without a vector's alignment: `count` of them, behind a first one.
Floats values_of(std::size_t count, std::uint32_t seed) {
    return awkward_values(count + 1, seed);
}

template <typename Body>
void for_each_case(const Body& body) {
    REQUIRE(available_low_rank_kernels().size() >= 2); // else nothing would be compared
    for (const LowRankKernels* kernels : available_low_rank_kernels()) {
        for (const std::size_t count : kLengths) {
            for (const std::size_t rank : kRanks) {
                for (std::size_t rows = 1; rows <= kRowsAtOnce; ++rows) {
                    CAPTURE(kernels->name, rows, count, rank);
                    body(*kernels, reference_low_rank_kernels(), rows, count, rank);
                }
            }
        }
    }
}

/// Rows that lie `kStride` more than their length apart.
struct Rows {
    static constexpr std::size_t kStride = 3;
    std::size_t stride;
    Floats values, errors;
    std::array<RowPart, kRowsAtOnce> parts{};

    Rows(std::size_t row_count, std::size_t count)
        : stride(count + kStride), values(values_of(row_count * stride, 1)), errors(values_of(row_count * stride, 2)) {
        for (std::size_t r = 0; r < row_count; ++r) {
            parts[r] = {values.data() + 1 + r * stride, errors.data() + 1 + r * stride};
        }
    }
};

TEST_CASE("low rank: right factors lie in tiles, each in one place", "[kernels][lowrank]") {
    for (const std::size_t columns : kLengths) {
        for (const std::size_t rank : kRanks) {
            std::vector<bool> taken(columns * rank);
            for (std::size_t k = 0; k < rank; ++k) {
                for (std::size_t c = 0; c < columns; ++c) {
                    const std::size_t index = right_index(columns, rank, k, c);
                    REQUIRE(index < taken.size());
                    CHECK_FALSE(taken[index]);
                    taken[index] = true;
                }
            }
            CHECK(right_index(columns, rank, 0, columns - 1 - (columns - 1) % kTileColumns) ==
                  (columns - 1) / kTileColumns * kTileColumns * rank);
        }
    }
}

TEST_CASE("low rank: every instruction set projects to the reference's bits", "[kernels][lowrank]") {
    for_each_case([](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t row_count,
                     std::size_t count, std::size_t rank) {
        const Rows rows(row_count, count);
        const Floats right = values_of(count * rank, 3);
        const auto projected_by = [&](const LowRankKernels& by) {
            Floats sums = values_of(row_count * rank, 4);
            sums.push_back(kGuard);
            const float largest =
                by.project(rows.parts.data(), row_count, count, right.data() + 1, rank, sums.data() + 1);
            sums.push_back(largest);
            return sums;
        };
        CHECK(same(projected_by(kernels), projected_by(reference)));
    });
}

TEST_CASE("low rank: every instruction set adds rows to the reference's bits", "[kernels][lowrank]") {
    for_each_case([](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t row_count,
                     std::size_t count, std::size_t rank) {
        const Rows rows(row_count, count);
        const Floats left = values_of(row_count * rank, 3);
        const auto added_by = [&](const LowRankKernels& by) {
            Floats right = values_of(count * rank, 4);
            right.push_back(kGuard);
            by.add_rows(rows.parts.data(), row_count, count, left.data() + 1, rank, right.data() + 1);
            return right;
        };
        CHECK(same(added_by(kernels), added_by(reference)));
    });
}

TEST_CASE("low rank: every instruction set expands to the reference's bits, in place or aside", "[kernels][lowrank]") {
    for_each_case([](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t row_count,
                     std::size_t count, std::size_t rank) {
        const Floats left = values_of(row_count * rank, 3);
        const Floats own = values_of(count * rank, 4), mean = values_of(count * rank, 5);
        const auto expanded_by = [&](const LowRankKernels& by, bool in_place) {
            Rows rows(row_count, count);
            Floats aside = rows.values;
            std::array<ExpandedRow, kRowsAtOnce> to{};
            for (std::size_t r = 0; r < row_count; ++r) {
                const std::size_t first = 1 + r * rows.stride;
                to[r] = {(in_place ? rows.values : aside).data() + first, rows.errors.data() + first};
            }
            by.expand(rows.parts.data(), row_count, count, left.data() + 1, rank, own.data() + 1, mean.data() + 1, 3,
                      to.data());
            Floats seen = in_place ? rows.values : aside;
            seen.insert(seen.end(), rows.errors.begin(), rows.errors.end());
            return seen;
        };
        const Floats expected = expanded_by(reference, false);
        for (const bool in_place : {false, true}) CHECK(same(expanded_by(kernels, in_place), expected));
    });
}

} // namespace
} // namespace onebit
