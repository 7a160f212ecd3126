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

/// Two bits: -1.5, -0.5, 0.5 or 1.5 times the scale, rounded to the nearest. These are the best even steps for Gaussian
/// values, to within half a percent of the step [Max, Quantizing for minimum distortion, 1960, table II]. The scale is
/// the root mean square of a group's elements that aren't 0, but no more than 2/3 of the largest.
struct Int2 {
    static constexpr unsigned kBits = 2;
    static constexpr double kCallError = 0.48;          ///< as error_of_call
    static constexpr float kOfLargest = 0x1.555554p-1F; // 2/3, rounded down: 1.5 times the product is finite

    using Statistics = Squares;
    ONEBIT_HOST_DEVICE static float scale_of(float largest, const Squares& squares) {
        return std::min(squares.root_of_mean(largest), rounded::multiply(largest, kOfLargest));
    }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }

    /// For a group with this scale.
    ONEBIT_HOST_DEVICE explicit Int2(float group_scale) : scale(group_scale) {}
    /// A whole number q in two's complement, which stands for q + 0.5.
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const {
        if (c < 0) return c < -scale ? 2 : 3;
        return c > scale ? 1 : 0;
    }

    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        return rounded::multiply(rounded::add(Integer<kBits>::number(code), 0.5F), factor);
    }

    float scale;
};

} // namespace onebit
