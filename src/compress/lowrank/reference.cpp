// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of low-rank approximations, element by element. What every other version is compared with, bit for bit;
// also what runs where no vector instructions are known.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/lowrank/kernels.hpp"
#include "core/kernel_tables.hpp"
#include "numeric/lanes.hpp"

namespace onebit {
namespace {

std::uint32_t magnitude_of(float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

float project(const RowPart& row, std::size_t count, const float* columns, std::size_t stride, std::size_t rank,
              float* sums) {
    for (std::size_t k = 0; k < rank; ++k) {
        float lanes[kLanes] = {};
        for (std::size_t c = 0; c < count; ++c) {
            lanes[c % kLanes] += (row.values[c] + row.errors[c]) * columns[k * stride + c];
        }
        sums[k] += sum_of_lanes(lanes);
    }
    std::uint32_t largest = 0;
    for (std::size_t c = 0; c < count; ++c) largest = std::max(largest, magnitude_of(row.values[c] + row.errors[c]));
    return std::bit_cast<float>(largest);
}

void add_rows(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
              std::size_t stride, float* sums) {
    for (std::size_t r = 0; r < row_count; ++r) {
        for (std::size_t k = 0; k < rank; ++k) {
            for (std::size_t c = 0; c < count; ++c) {
                sums[k * stride + c] += (rows[r].values[c] + rows[r].errors[c]) * left[r * rank + k];
            }
        }
    }
}

float product(const float* left, std::size_t rank, std::size_t stride, const float* right) {
    float sum = left[0] * right[0];
    for (std::size_t k = 1; k < rank; ++k) sum += left[k] * right[k * stride];
    return sum;
}

void expand(const RowPart& row, std::size_t count, const float* left, std::size_t rank, std::size_t stride,
            const float* own, const float* mean, float factor, float* results, float* errors) {
    for (std::size_t c = 0; c < count; ++c) {
        errors[c] = (row.values[c] + row.errors[c]) - product(left, rank, stride, own + c);
        results[c] = factor * product(left, rank, stride, mean + c);
    }
}

} // namespace

const LowRankKernels& reference_low_rank_kernels() {
    static constexpr LowRankKernels kTable = {"reference", project, add_rows, expand};
    return kTable;
}

const LowRankKernels& low_rank_kernels(const std::string& name) {
    const LowRankKernels* const named = table_named(available_low_rank_kernels(), name);
    return named != nullptr ? *named : reference_low_rank_kernels();
}

} // namespace onebit
