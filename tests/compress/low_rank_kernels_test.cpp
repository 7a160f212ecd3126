// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations: every instruction set that this machine has against the scalar reference, the
// same bits.

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "compress/lowrank/kernels.hpp"
#include "numeric/awkward_values.hpp"

namespace onebit {
namespace {

constexpr std::size_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 511, 1000, 1023, 1024};
constexpr std::size_t kRanks[] = {1, 2, 3, 4, 5, 8, 13};
constexpr float kGuard = 77;

using Floats = std::vector<float>;

/// Bits, but that any NaN is like any other.
bool same(const Floats& a, const Floats& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
        if (!both_nan && std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
    }
    return true;
}

/// Of no vector's alignment, `count` of them behind the first.
Floats values_of(std::size_t count, std::uint32_t seed) {
    return awkward_values(count + 1, seed);
}

template <typename Body>
void for_each_case(const Body& body) {
    REQUIRE(available_low_rank_kernels().size() >= 2); // else nothing would be compared
    for (const LowRankKernels* kernels : available_low_rank_kernels()) {
        for (const std::size_t count : kLengths) {
            for (const std::size_t rank : kRanks) {
                CAPTURE(kernels->name, count, rank);
                body(*kernels, reference_low_rank_kernels(), count, rank);
            }
        }
    }
}

TEST_CASE("low rank: every instruction set projects to the reference's bits", "[kernels][lowrank]") {
    for_each_case([](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t count,
                     std::size_t rank) {
        const std::size_t stride = count + 3;
        const Floats values = values_of(count, 1), errors = values_of(count, 2), columns = values_of(stride * rank, 3);
        const auto projected_by = [&](const LowRankKernels& by) {
            Floats sums = values_of(rank, 4);
            sums.push_back(kGuard);
            const RowPart row = {values.data() + 1, errors.data() + 1};
            const float largest = by.project(row, count, columns.data() + 1, stride, rank, sums.data() + 1);
            sums.push_back(largest);
            return sums;
        };
        CHECK(same(projected_by(kernels), projected_by(reference)));
    });
}

TEST_CASE("low rank: every instruction set adds rows to the reference's bits", "[kernels][lowrank]") {
    for_each_case(
        [](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t count, std::size_t rank) {
            for (std::size_t rows = 1; rows <= kRowsAtOnce; ++rows) {
                const std::size_t stride = count + 3;
                const Floats values = values_of(rows * stride, 1), errors = values_of(rows * stride, 2);
                const Floats left = values_of(rows * rank, 3);
                const auto added_by = [&](const LowRankKernels& by) {
                    Floats sums = values_of(stride * rank, 4);
                    RowPart parts[kRowsAtOnce];
                    for (std::size_t r = 0; r < rows; ++r) {
                        parts[r] = {values.data() + 1 + r * stride, errors.data() + 1 + r * stride};
                    }
                    by.add_rows(parts, rows, count, left.data() + 1, rank, stride, sums.data() + 1);
                    return sums;
                };
                CHECK(same(added_by(kernels), added_by(reference)));
            }
        });
}

TEST_CASE("low rank: every instruction set expands to the reference's bits, in place or aside", "[kernels][lowrank]") {
    for_each_case([](const LowRankKernels& kernels, const LowRankKernels& reference, std::size_t count,
                     std::size_t rank) {
        const std::size_t stride = count + 3;
        const Floats left = values_of(rank, 3), own = values_of(stride * rank, 4), mean = values_of(stride * rank, 5);
        const auto expanded_by = [&](const LowRankKernels& by, bool in_place) {
            Floats values = values_of(count, 1), errors = values_of(count, 2);
            values.push_back(kGuard);
            errors.push_back(kGuard);
            Floats results(in_place ? 0 : count + 1, kGuard);
            const RowPart row = {values.data() + 1, errors.data() + 1};
            by.expand(row, count, left.data() + 1, rank, stride, own.data() + 1, mean.data() + 1, 3,
                      in_place ? values.data() + 1 : results.data(), errors.data() + 1);
            Floats seen(errors);
            if (in_place) {
                seen.insert(seen.end(), values.begin() + 1, values.end());
            } else {
                seen.insert(seen.end(), results.begin(), results.end());
            }
            return seen;
        };
        const Floats expected = expanded_by(reference, false);
        for (const bool in_place : {false, true}) CHECK(same(expanded_by(kernels, in_place), expected));
    });
}

} // namespace
} // namespace onebit
