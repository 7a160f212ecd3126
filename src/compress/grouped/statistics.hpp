// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/grouped/layout.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"

/// What a scale may depend on beside the largest magnitude of its group. Each is added up in 32 lanes, as
/// docs/WIRE_FORMAT.md says.
namespace onebit {

struct Squares {
    float sum;              ///< of (element * power_before(largest))^2 over all elements
    std::uint32_t nonzeros; ///< elements that aren't 0

    /// A power of two such that the square of (largest * power) is finite and normal.
    ONEBIT_HOST_DEVICE static float power_before(float largest) {
        const std::uint32_t exponent = std::bit_cast<std::uint32_t>(largest) >> 23;
        return std::bit_cast<float>(std::max(254U - exponent, 1U) << 23);
    }
    /// Of the elements that aren't 0. May be infinite where `largest` is nearly infinite.
    ONEBIT_HOST_DEVICE float root_of_mean(float largest) const {
        if (nonzeros == 0) return 0;
        const float root = rounded::sqrt(rounded::divide(sum, static_cast<float>(nonzeros)));
        return rounded::multiply(root, rounded::inverse_of_power(power_before(largest)));
    }
};

/// Of the positive elements, or the negative ones.
struct MagnitudeSum {
    float sum;           ///< of their magnitudes times kPart: it is finite
    std::uint32_t count; ///< of them

    static constexpr float kPart = 1.0F / static_cast<float>(kGroupElements);

    ONEBIT_HOST_DEVICE float mean(float largest) const {
        if (count == 0) return 0;
        const float all = rounded::divide(static_cast<float>(kGroupElements), static_cast<float>(count));
        const float mean = rounded::multiply(sum, all);
        return mean < largest ? mean : largest;
    }
};

struct SignedSums {
    MagnitudeSum positive;
    MagnitudeSum negative;
};

} // namespace onebit
