// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/rounded.hpp"

/// Floats in bytes: whole numbers from -127 to 127, and for each 256 of them the power of two by which they are to be
/// multiplied. With this power the largest is in [64, 128). So a value that has been in bytes once goes there again
/// unchanged.
namespace onebit {

/// Values that share a power of two.
inline constexpr std::size_t kScaledGroup = 256;
/// In the place of a power's exponent: a value is not finite, and so the whole group counts as not finite.
inline constexpr std::uint8_t kNotFinite = 255;

/// The exponent as a float has it. `largest`: the bits of the largest magnitude.
constexpr std::uint8_t scaled_exponent(std::uint32_t largest) {
    const std::uint32_t exponent = largest >> 23;
    if (exponent == kNotFinite) return kNotFinite;
    return static_cast<std::uint8_t>(exponent > 6 ? exponent - 6 : 1U);
}
constexpr float scale_of_exponent(std::uint8_t exponent) {
    return std::bit_cast<float>(std::uint32_t{exponent} << 23);
}
/// For an exponent that is not kNotFinite.
constexpr float inverse_of_exponent(std::uint8_t exponent) {
    return rounded::inverse_of_power(scale_of_exponent(exponent));
}

inline constexpr float kMostInByte = 127;

constexpr std::int8_t scaled_byte(float value, float inverse) {
    const float number = std::min(std::max(value * inverse, -kMostInByte), kMostInByte);
    return static_cast<std::int8_t>(std::bit_cast<std::uint32_t>(number + rounded::kToWhole));
}

} // namespace onebit
