// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"

namespace onebit {

/// What values are multiplied by before they are squared: squares then are floats, with `largest` among them.
ONEBIT_HOST_DEVICE inline float power_before_squares(float largest) {
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) >> 23;
    return std::bit_cast<float>(std::max(254U - exponent, 1U) << 23);
}

/// Of a group's elements that aren't 0. `squares`: of the values times that power, added up. May be infinite where
/// `largest` is nearly.
ONEBIT_HOST_DEVICE inline float root_mean_square(float largest, float squares, std::uint32_t nonzeros) {
    if (nonzeros == 0) return 0;
    const float root = rounded::sqrt(rounded::divide(squares, static_cast<float>(nonzeros)));
    return rounded::multiply(root, rounded::inverse_of_power(power_before_squares(largest)));
}

} // namespace onebit
