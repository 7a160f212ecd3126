// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"

/// Between float32 and the 16-bit formats, for one element, on CPU and GPU alike: exact one way, to the nearest (even)
/// the other. A finite value stays finite: beyond the largest one, it becomes the largest one. Infinities stay
/// infinities, NaNs NaNs.
namespace onebit {

ONEBIT_HOST_DEVICE inline float widened_float16(std::uint16_t value) {
    const std::uint32_t half = value;
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t shifted = (half & 0x7fffU) << 13;                // exponent and mantissa where float32 has them
    std::uint32_t magnitude = shifted + (112U << 23);                    // the exponents' biases differ by 127 - 15
    if ((half & 0x7fffU) >= 0x7c00U) magnitude = shifted + (224U << 23); // infinity, NaN
    if ((half & 0x7fffU) < 0x0400U) { // subnormal: 1.mantissa * 2^-14, minus the 1 that it doesn't have
        const auto with_one = std::bit_cast<float>(shifted + (113U << 23));
        magnitude = std::bit_cast<std::uint32_t>(rounded::subtract(with_one, 0x1p-14F));
    }
    return std::bit_cast<float>(sign | magnitude);
}

ONEBIT_HOST_DEVICE inline float widened_bfloat16(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

ONEBIT_HOST_DEVICE inline std::uint16_t narrowed_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t odd = magnitude >> 13 & 1U;
    std::uint32_t half = (magnitude - (112U << 23) + 0xfffU + odd) >> 13; // may carry into the exponent, rightly
    if (magnitude < (113U << 23)) { // subnormal: the addition rounds at the bit that counts 2^-24
        const float sum = rounded::add(std::bit_cast<float>(magnitude), 0.5F);
        half = std::bit_cast<std::uint32_t>(sum) - (126U << 23);
    }
    if (magnitude >= 0x477ff000U) half = 0x7bffU; // from 65520 on: the largest finite number, 65504
    if (magnitude >= 0x7f800000U) half = 0x7c00U; // infinity
    if (magnitude > 0x7f800000U) half = 0x7e00U;  // NaN
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | half);
}

ONEBIT_HOST_DEVICE inline std::uint16_t narrowed_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t bfloat = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    if (magnitude >= 0x7f7f8000U)
        bfloat = (bits >> 16 & 0x8000U) | 0x7f7fU;            // nearer to 2^128: the largest finite number
    if (magnitude >= 0x7f800000U) bfloat = bits >> 16;        // infinity
    if (magnitude > 0x7f800000U) bfloat = bits >> 16 | 0x40U; // NaN
    return static_cast<std::uint16_t>(bfloat);
}

/// Formats as types, each of a sign bit, an exponent and a mantissa. kMost: the largest finite magnitude. kLimit: the
/// largest float that is no nearer to the value that would come after kMost.
struct Float16 {
    static constexpr std::uint16_t kMost = 0x7bff;
    static constexpr float kLimit = 0x1.ffdffep+15F;
    static float widened(std::uint16_t value) { return widened_float16(value); }
    static std::uint16_t narrowed(float value) { return narrowed_float16(value); }
};

struct BrainFloat16 {
    static constexpr std::uint16_t kMost = 0x7f7f;
    static constexpr float kLimit = 0x1.fefffep+127F;
    static float widened(std::uint16_t value) { return widened_bfloat16(value); }
    static std::uint16_t narrowed(float value) { return narrowed_bfloat16(value); }
};

/// Rounded; a value that is too large becomes an infinity.
template <typename Format>
std::uint16_t narrowed_or_infinite(float value) {
    const std::uint16_t finite = Format::narrowed(value);
    if (!(std::fabs(value) > Format::kLimit)) return finite;
    return static_cast<std::uint16_t>((finite & 0x8000U) | (Format::kMost + 1U));
}

} // namespace onebit
