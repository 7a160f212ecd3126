// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"

namespace onebit {

/// Four bits: a sign and three bits of exponent, E3M0: a group's largest magnitude times 2^0, 2^-1, ... 2^-6, and zero
/// [Streaming DiLoCo, arXiv 2501.18512].
struct Fp4 {
    static constexpr unsigned kBits = 4;
    static constexpr double kCallError = 0.27; ///< as error_of_call
    static constexpr std::uint32_t kZero = 7;
    static constexpr std::uint32_t kNegative = 8;
    /// In units of the scale: 0.75 * 2^-k; the last, 2^-7. A magnitude below k thresholds has code k.
    static constexpr unsigned kThresholds = 7;
    static constexpr float threshold(unsigned k) {
        return k < 6 ? std::bit_cast<float>(0x3f400000U - (k << 23)) : 0x1p-7F;
    }

    ONEBIT_HOST_DEVICE static float scale_of(float largest) { return largest; }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }

    ONEBIT_HOST_DEVICE explicit Fp4(float group_scale) : scale(group_scale) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const {
        std::uint32_t exponent = 0;
        for (unsigned k = 0; k < kThresholds; ++k) {
            exponent += std::fabs(c) < rounded::multiply(scale, threshold(k)) ? 1U : 0U;
        }
        if (c == 0) exponent = kZero; // also where thresholds are so small that they are 0
        return exponent | (c < 0 && exponent != kZero ? kNegative : 0U);
    }

    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        const std::uint32_t exponent = code & kZero;
        if (exponent == kZero) return 0;
        const float magnitude = rounded::multiply(factor, std::bit_cast<float>((127U - exponent) << 23));
        return (code & kNegative) != 0 ? -magnitude : magnitude;
    }

    float scale;
};

} // namespace onebit
