// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The top-k code's kernels, element by element. What every other version is compared with, bit for bit; also what runs
// where no vector instructions are known.

#include <algorithm>
#include <bit>

#include "compress/topk/kernels.hpp"

namespace onebit {
namespace {

std::uint32_t magnitude_of(float value) {
    return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

void correct(const float* values, const float* before, float* after, const std::uint32_t* valid, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) after[i] = takes_part(valid, i) ? values[i] + before[i] : 0.0F;
}

std::uint32_t find_largest(const float* values, std::size_t count, std::uint32_t* of_runs) {
    std::fill_n(of_runs, ceil_divide(count, kRunElements), 0U);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t& of_run = of_runs[i / kRunElements];
        of_run = std::max(of_run, magnitude_of(values[i]));
        largest = std::max(largest, of_run);
    }
    return largest;
}

void find_at_least(const float* values, std::size_t count, const std::uint32_t*, std::uint32_t bound,
                   std::uint32_t* words) {
    std::fill_n(words, ceil_divide(count, kRunElements), 0U);
    for (std::size_t i = 0; i < count; ++i) {
        if (magnitude_of(values[i]) >= bound) words[i / kRunElements] |= 1U << i % kRunElements;
    }
}

} // namespace

const TopkKernels& reference_topk_kernels() {
    static constexpr TopkKernels kTable = {"reference", correct, find_largest, find_at_least};
    return kTable;
}

} // namespace onebit
