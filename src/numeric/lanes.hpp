// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// Sums that are the same on every ISA and device: elements are added in a fixed number of lanes, and the lanes as a
/// tree.
namespace onebit {

/// Lanes of a block's sum: element i of the block is added in lane i mod 32.
inline constexpr std::size_t kLanes = 32;

/// The lanes, added up as the tree.
template <typename Real, std::size_t kWidth>
Real sum_of_lanes(Real (&lanes)[kWidth]) {
    for (std::size_t half = kWidth / 2; half > 0; half /= 2) {
        for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    return lanes[0];
}

/// addend(0) + addend(1) + ... in double, in kWidth lanes.
template <std::size_t kWidth, typename Addend>
double sum_in_lanes(std::size_t count, const Addend& addend) {
    double lanes[kWidth] = {};
    const std::size_t rest = count / kWidth * kWidth;
    for (std::size_t row = 0; row < rest; row += kWidth) { // row by row: a compiler makes vectors of it
        for (std::size_t k = 0; k < kWidth; ++k) lanes[k] += addend(row + k);
    }
    for (std::size_t i = rest; i < count; ++i) lanes[i - rest] += addend(i);
    return sum_of_lanes(lanes);
}

} // namespace onebit
