// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/grouped/statistics.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "numeric/halves.hpp"

namespace onebit {

/// One bit: whether an element is negative. Two numbers stand for the elements: the mean of the positive elements and
/// the mean of the negative ones [1-bit SGD, Interspeech 2014, section 2.2]. As bfloat16 they are the halves of the
/// group's scale; the positive mean is the upper half. So the scale, as a float, is finite if the means are.
struct Means {
    static constexpr unsigned kBits = 1;
    static constexpr double kCallError = 0.79; ///< as error_of_call
    using Statistics = SignedSums;

    ONEBIT_HOST_DEVICE static float scale_of(float largest, const SignedSums& sums) {
        const std::uint32_t positive = narrowed_bfloat16(sums.positive.mean(largest));
        const std::uint32_t negative = narrowed_bfloat16(sums.negative.mean(largest));
        return std::bit_cast<float>(positive << 16 | negative);
    }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }

    ONEBIT_HOST_DEVICE explicit Means(float) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const { return c < 0 ? 1U : 0U; }

    /// For a group that is not finite, neither `factor` nor its upper half is finite.
    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        const auto means = std::bit_cast<std::uint32_t>(factor);
        const std::uint32_t negative = 0x80000000U | means << 16;
        return std::bit_cast<float>(code == 0 ? means & 0xffff0000U : negative);
    }
};

} // namespace onebit
