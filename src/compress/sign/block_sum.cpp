// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/block_sum.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/sign/arithmetic.hpp"
#include "numeric/lanes.hpp"

namespace onebit {
namespace {

/// Whether all are zeros or subnormal numbers, which count as zero.
bool all_zero(const float* values, std::size_t count) {
    std::uint32_t bits[kLanes] = {}; // many, so that none waits for the one before
    const std::size_t rest = count / kLanes * kLanes;
    for (std::size_t row = 0; row < rest; row += kLanes) {
        for (std::size_t k = 0; k < kLanes; ++k) bits[k] |= std::bit_cast<std::uint32_t>(values[row + k]);
    }
    for (std::size_t i = rest; i < count; ++i) bits[0] |= std::bit_cast<std::uint32_t>(values[i]);
    return std::all_of(bits, bits + kLanes, [](std::uint32_t b) { return (b & 0x7f800000U) == 0; });
}

} // namespace

double sum_in_double(const float* values, std::size_t count, onebit_scale_t scale) {
    if (all_zero(values, count)) return 0;
    if (scale == ONEBIT_SCALE_L1) {
        return sum_in_lanes<kLanes>(count,
                                    [=](std::size_t i) { return addend_of<double>(values[i], ONEBIT_SCALE_L1); });
    }
    return sum_in_lanes<kLanes>(count, [=](std::size_t i) { return addend_of<double>(values[i], ONEBIT_SCALE_L2); });
}

} // namespace onebit
