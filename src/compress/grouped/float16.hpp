// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "numeric/halves.hpp"

namespace onebit {

/// IEEE's 16 bits, rounded to nearest, ties to even, times a power of two. The power puts the largest magnitude of a
/// group into [2^14, 2^15), so that values of any size keep 11 digits.
struct ScaledFloat16 {
    static constexpr unsigned kBits = 16;
    static constexpr double kCallError = 0.0003;    ///< as error_of_call
    static constexpr std::uint32_t kExponent = 14;  ///< of the largest
    static constexpr std::uint32_t kMost = 0x77ffU; ///< the largest below 2^15, which times the scale is finite

    ONEBIT_HOST_DEVICE static float scale_of(float largest) {
        const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) >> 23;
        return std::bit_cast<float>((exponent > kExponent ? exponent - kExponent : 1U) << 23);
    }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }
    ONEBIT_HOST_DEVICE static float inverse_of(float scale) { return rounded::inverse_of_power(scale); }

    /// For a group with this scale.
    ONEBIT_HOST_DEVICE explicit ScaledFloat16(float scale) : inverse(inverse_of(scale)) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const {
        const std::uint32_t half = narrowed_float16(rounded::multiply(c, inverse));
        const std::uint32_t magnitude = half & 0x7fffU;
        return (half & 0x8000U) | (magnitude < kMost ? magnitude : kMost);
    }

    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        return rounded::multiply(widened_float16(static_cast<std::uint16_t>(code)), factor);
    }

    float inverse;
};

} // namespace onebit
