// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations, element by element. Every other version is compared with this one, bit for
// bit. It also runs where no vector instructions are known.

#include <bit>
#include <cstdint>

#include "compress/lowrank/kernels.hpp"
#include "core/kernel_tables.hpp"
#include "numeric/lanes.hpp"

namespace onebit {
namespace {

float project(const RowPart* rows, std::size_t row_count, std::size_t count, const float* right, std::size_t rank,
              float* sums) {
    std::uint32_t largest = 0;
    for (std::size_t r = 0; r < row_count; ++r) {
        const auto x = [&](std::size_t c) { return rows[r].values[c] + rows[r].errors[c]; };
        for (std::size_t k = 0; k < rank; ++k) {
            float lanes[kTileColumns] = {};
            for (std::size_t c = 0; c < count; ++c) {
                lanes[c % kTileColumns] += x(c) * right[right_index(count, rank, k, c)];
            }
            sums[r * rank + k] += sum_of_lanes(lanes);
        }
        for (std::size_t c = 0; c < count; ++c) {
            largest = std::max(largest, std::bit_cast<std::uint32_t>(x(c)) & 0x7fffffffU);
        }
    }
    return std::bit_cast<float>(largest);
}

void add_rows(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
              float* right) {
    for (std::size_t r = 0; r < row_count; ++r) {
        for (std::size_t k = 0; k < rank; ++k) {
            for (std::size_t c = 0; c < count; ++c) {
                right[right_index(count, rank, k, c)] += (rows[r].values[c] + rows[r].errors[c]) * left[r * rank + k];
            }
        }
    }
}

void expand(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
            const float* own, const float* mean, float factor, const ExpandedRow* expanded) {
    for (std::size_t r = 0; r < row_count; ++r) {
        const float* const of_row = left + r * rank;
        const auto product = [&](std::size_t c, const float* right) {
            float sum = of_row[0] * right[right_index(count, rank, 0, c)];
            for (std::size_t k = 1; k < rank; ++k) sum += of_row[k] * right[right_index(count, rank, k, c)];
            return sum;
        };
        for (std::size_t c = 0; c < count; ++c) {
            const float x = rows[r].values[c] + rows[r].errors[c];
            expanded[r].errors[c] = x - product(c, own);
            expanded[r].results[c] = factor * product(c, mean);
        }
    }
}

} // namespace

const LowRankKernels& reference_low_rank_kernels() {
    static constexpr LowRankKernels kTable = {"reference", project, add_rows, expand};
    return kTable;
}

const LowRankKernels& low_rank_kernels(const std::string& name) {
    return table_or_reference(available_low_rank_kernels(), name);
}

} // namespace onebit
