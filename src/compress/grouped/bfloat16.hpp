// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"

namespace onebit {

/// The upper half of a float, rounded to nearest, ties to even. A scale only says whether its group is finite.
struct Bfloat16 {
    static constexpr unsigned kBits = 16;
    static constexpr double kCallError = 0.0025; ///< as error_of_call
    static constexpr std::uint32_t kSign = 0x80000000U;
    static constexpr std::uint32_t kLargestFinite = 0x7f7f0000U;

    ONEBIT_HOST_DEVICE static float scale_of(float largest) { return largest; }
    /// NaN for a group that is not finite, so that every decoder sees that.
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return rounded::add(1, rounded::multiply(scale, 0)); }

    ONEBIT_HOST_DEVICE explicit Bfloat16(float) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const {
        const auto bits = std::bit_cast<std::uint32_t>(c);
        const std::uint32_t magnitude = bits & ~kSign;
        const std::uint32_t up = magnitude + 0x7fffU + (magnitude >> 16 & 1U);
        const std::uint32_t nearest = up < kLargestFinite ? up : kLargestFinite; // std::min takes a host's address
        return (nearest | (bits & kSign)) >> 16;
    }

    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        return rounded::multiply(std::bit_cast<float>(code << 16), factor);
    }
};

} // namespace onebit
