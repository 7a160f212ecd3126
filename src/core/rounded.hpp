// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"

/// Operations that are each rounded to the nearest: a GPU's compiler would fuse a product and a sum.
namespace onebit::rounded {

ONEBIT_HOST_DEVICE inline float add(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

ONEBIT_HOST_DEVICE inline float subtract(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}

ONEBIT_HOST_DEVICE inline float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

ONEBIT_HOST_DEVICE inline float divide(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

ONEBIT_HOST_DEVICE inline float sqrt(float a) {
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(a);
#else
    return std::sqrt(a);
#endif
}

/// Adding it to a small float leaves the nearest whole number in the low bits, ties to even, in two's complement.
inline constexpr float kToWhole = 0x1.8p23F;

/// 1 over a power of two from 2^-126 to 2^126.
ONEBIT_HOST_DEVICE constexpr float inverse_of_power(float power) {
    return std::bit_cast<float>((254U << 23) - std::bit_cast<std::uint32_t>(power));
}

/// x, or the bound of the same sign if it is beyond that; a NaN stays one.
ONEBIT_HOST_DEVICE inline float clamp(float x, float bound) {
    const float at_least = x < -bound ? -bound : x;
    return at_least > bound ? bound : at_least;
}

ONEBIT_HOST_DEVICE inline double add(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}

ONEBIT_HOST_DEVICE inline double multiply(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

} // namespace onebit::rounded
