// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>

/// Sums in double, in the order in which a GPU adds.
namespace onebit {

/// addend(0) + addend(1) + ... in so many lanes, which are then added up as a tree.
template <std::size_t kWidth, typename Addend>
double sum_in_lanes(std::size_t count, const Addend& addend) {
    double lanes[kWidth] = {};
    const std::size_t rest = count / kWidth * kWidth;
    for (std::size_t row = 0; row < rest; row += kWidth) { // row by row: a compiler makes vectors of it
        for (std::size_t k = 0; k < kWidth; ++k) lanes[k] += addend(row + k);
    }
    for (std::size_t i = rest; i < count; ++i) lanes[i - rest] += addend(i);
    for (std::size_t half = kWidth / 2; half > 0; half /= 2) {
        for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    return lanes[0];
}

/// A block's sum of squares (L2) or magnitudes (L1), for the block whose float sum can't be trusted (is_trusted). Most
/// are of a layer that isn't used.
double sum_in_double(const float* values, std::size_t count, onebit_scale_t scale);

} // namespace onebit
