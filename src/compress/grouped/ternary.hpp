// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "compress/grouped/integer.hpp"
#include "compress/grouped/statistics.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"

namespace onebit {

/// Two bits: -1, 0 or 1 times the scale, TernGrad's levels [arXiv 1705.07878], rounded to the nearest. The scale is
/// twice the root mean square of a group's elements that aren't 0, but no more than the largest.
struct Ternary {
    static constexpr unsigned kBits = 2;
    static constexpr double kCallError = 1.08; ///< as error_of_call
    static constexpr std::uint32_t kPlus = 1;
    static constexpr std::uint32_t kMinus = 3;

    using Statistics = Squares;
    ONEBIT_HOST_DEVICE static float scale_of(float largest, const Squares& squares) {
        return std::min(rounded::multiply(2, squares.root_of_mean(largest)), largest);
    }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }
    ONEBIT_HOST_DEVICE static float threshold_of(float scale) { return rounded::multiply(0.5F, scale); }

    /// For a group with this scale.
    ONEBIT_HOST_DEVICE explicit Ternary(float scale) : threshold(threshold_of(scale)) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const { return c > threshold ? kPlus : c < -threshold ? kMinus : 0; }

    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        return Integer<kBits>::value(code, factor);
    }

    float threshold;
};

} // namespace onebit
