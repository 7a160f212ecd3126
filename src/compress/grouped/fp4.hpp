// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/rounded.hpp"

namespace onebit {

/// Four bits: a sign and three bits of exponent, E3M0: a group's largest magnitude times 2^0, 2^-1, ... 2^-6, and zero
/// [Streaming DiLoCo, arXiv 2501.18512].
struct Fp4 {
    static constexpr unsigned kBits = 4;
    static constexpr std::uint32_t kZero = 7;
    static constexpr std::uint32_t kNegative = 8;
    /// Times the scale: a magnitude below k of them has code k.
    static constexpr std::array kThresholds = {0.75F, 0.375F, 0.1875F, 0.09375F, 0.046875F, 0.0234375F, 0.0078125F};

    static float scale_of(float largest) { return largest; }
    static float factor_of(float scale) { return scale; }

    explicit Fp4(float group_scale) : scale(group_scale) {}
    std::uint32_t code(float c) const {
        std::uint32_t exponent = 0;
        for (const float threshold : kThresholds) {
            exponent += std::fabs(c) < rounded::multiply(scale, threshold) ? 1U : 0U;
        }
        if (c == 0) exponent = kZero; // also where thresholds are so small that they are 0
        return exponent | (c < 0 && exponent != kZero ? kNegative : 0U);
    }

    static float value(std::uint32_t code, float factor) {
        const std::uint32_t exponent = code & kZero;
        if (exponent == kZero) return 0;
        const float magnitude = rounded::multiply(factor, std::bit_cast<float>((127U - exponent) << 23));
        return (code & kNegative) != 0 ? -magnitude : magnitude;
    }

    float scale;
};

} // namespace onebit
