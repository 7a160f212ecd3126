// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of sparse codes, element by element. Every other version is compared with this one, bit for bit. It also
// runs where no vector instructions are known.

#include <algorithm>
#include <bit>

#include "compress/sparse/kernels.hpp"

namespace onebit {
namespace {

std::uint32_t magnitude_of(float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

void correct(const float* values, const float* before, float* after, const std::uint32_t* valid, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) after[i] = takes_part(valid, i) ? values[i] + before[i] : 0.0F;
}

float find_largest(const float* values, std::size_t count, float* of_runs) {
    std::uint32_t largest = 0;
    for (std::size_t begin = 0; begin < count; begin += kRunElements) {
        std::uint32_t of_run = 0;
        for (std::size_t i = begin; i < std::min(begin + kRunElements, count); ++i) {
            of_run = std::max(of_run, magnitude_of(values[i]));
        }
        of_runs[begin / kRunElements] = std::bit_cast<float>(of_run);
        largest = std::max(largest, of_run);
    }
    return std::bit_cast<float>(largest);
}

std::size_t find_at_least(const float* values, std::size_t count, const float*, float bound, Positions* positions) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (magnitude_of(values[i]) < magnitude_of(bound)) continue;
        if (found < Positions::kMost) positions->at[found] = static_cast<std::uint16_t>(i);
        ++found;
    }
    return found;
}

/// Bit by bit, from the highest bit on: a bit is 1 if at least k magnitudes are then at least as large.
float find_kth(const float* values, std::size_t count, std::size_t k) {
    std::uint32_t kth = 0;
    for (std::uint32_t bit = 1U << 30; bit != 0; bit >>= 1) {
        const auto reaches = [bound = kth | bit](float value) { return magnitude_of(value) >= bound; };
        if (static_cast<std::size_t>(std::count_if(values, values + count, reaches)) >= k) kth |= bit;
    }
    return std::bit_cast<float>(kth);
}

} // namespace

const SparseKernels& reference_sparse_kernels() {
    static constexpr SparseKernels kTable = {"reference", correct, find_largest, find_at_least, find_kth};
    return kTable;
}

} // namespace onebit
