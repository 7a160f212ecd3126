// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "numeric/mean.hpp"

namespace onebit {

/// Whole numbers of so many bits. The largest magnitude of a group gets the greatest number.
template <unsigned kBitCount>
struct Integer {
    static constexpr unsigned kBits = kBitCount;
    static constexpr double kCallError = kBits == 8 ? 0.0098 : 0.18; ///< as error_of_call, of 8 and 4 bits
    static constexpr float kPartOfOne = 0x1p-24F;
    static constexpr float kMost = static_cast<float>((1U << (kBits - 1)) - 1);

    ONEBIT_HOST_DEVICE static float scale_of(float largest) {
        const float scale = rounded::divide(largest, kMost);
        if (is_finite(rounded::multiply(scale, kMost))) return scale;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1);
    }
    ONEBIT_HOST_DEVICE static float factor_of(float scale) { return scale; }
    ONEBIT_HOST_DEVICE static float inverse_of(float scale) { return scale > 0 ? rounded::divide(1, scale) : 0; }

    /// For a group with this scale.
    ONEBIT_HOST_DEVICE explicit Integer(float scale) : inverse(inverse_of(scale)) {}
    ONEBIT_HOST_DEVICE std::uint32_t code(float c) const { return nearest(rounded::multiply(c, inverse)); }
    /// Up or down; the mean is c itself. `bits`: drawn; as a whole number over 2^32 they are in [-1/2, 1/2).
    ONEBIT_HOST_DEVICE std::uint32_t stochastic_code(float c, std::uint32_t bits) const {
        const auto part = static_cast<float>(static_cast<std::int32_t>(bits) >> 8); // a float has room for 24 bits
        const float moved = rounded::add(rounded::multiply(c, inverse), rounded::multiply(part, kPartOfOne));
        return nearest(rounded::clamp(moved, kMost));
    }
    ONEBIT_HOST_DEVICE static std::uint32_t nearest(float number) {
        return std::bit_cast<std::uint32_t>(rounded::add(number, rounded::kToWhole)) & ((1U << kBits) - 1);
    }

    /// The number that a code is.
    ONEBIT_HOST_DEVICE static float number(std::uint32_t code) {
        return static_cast<float>(static_cast<std::int32_t>(code << (32 - kBits)) >> (32 - kBits));
    }
    ONEBIT_HOST_DEVICE static float value(std::uint32_t code, float factor) {
        return rounded::multiply(number(code), factor);
    }

    float inverse;
};

/// Whether a code is an Integer, which can be rounded up or down at random.
template <typename Code>
inline constexpr bool kIsInteger = false;
template <unsigned kBitCount>
inline constexpr bool kIsInteger<Integer<kBitCount>> = true;

} // namespace onebit
