// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// binary16 and bfloat16 spelt out, to the nearest and to even between two: the reference for the library's conversions.
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace onebit_test {

inline std::uint32_t bits_of(float x) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of(std::uint32_t bits) {
    float x = 0;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline std::uint16_t to_half(float x) {
    const unsigned sign = std::signbit(x) ? 0x8000u : 0;
    const double magnitude = std::fabs(static_cast<double>(x));
    unsigned bits = 0x7c00; // infinity
    if (std::isnan(x)) {
        bits = 0x7e00;
    } else if (magnitude < 0x1p-14) { // subnormal, in units of 2^-24; 1024 of them are the smallest normal number
        bits = static_cast<unsigned>(std::nearbyint(magnitude * 0x1p24));
    } else if (magnitude < 65520) { // half-way between the largest number and 2^16
        const int exponent = std::ilogb(magnitude);
        const double mantissa = std::nearbyint(std::ldexp(magnitude, 10 - exponent)); // 1024 to 2048
        bits = static_cast<unsigned>(exponent + 15) * 1024 + (static_cast<unsigned>(mantissa) - 1024);
    }
    return static_cast<std::uint16_t>(sign | bits);
}

inline float from_half(std::uint16_t half) {
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    double magnitude = std::ldexp(exponent == 0 ? mantissa : mantissa + 1024, (exponent == 0 ? 1 : exponent) - 25);
    if (exponent == 31) magnitude = mantissa == 0 ? INFINITY : NAN;
    return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

inline std::uint16_t to_bfloat(float x) {
    const std::uint32_t bits = bits_of(x), half_way = 0x8000;
    if (std::isnan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    const std::uint32_t rest = bits & 0xffff;
    std::uint32_t kept = bits >> 16;
    if (rest > half_way || (rest == half_way && kept % 2 == 1)) ++kept; // the largest number turns to infinity
    return static_cast<std::uint16_t>(kept);
}

inline float from_bfloat(std::uint16_t bfloat) {
    return float_of(static_cast<std::uint32_t>(bfloat) << 16);
}

inline std::size_t bytes_of(onebit_datatype_t type) {
    return type == ONEBIT_FLOAT32 ? 4 : 2;
}

// `x` after a conversion to `type` and back.
inline float rounded(float x, onebit_datatype_t type) {
    if (type == ONEBIT_FLOAT16) return from_half(to_half(x));
    return type == ONEBIT_BFLOAT16 ? from_bfloat(to_bfloat(x)) : x;
}

// The bytes of values in `type`.
inline std::vector<unsigned char> converted(const std::vector<float>& values, onebit_datatype_t type) {
    std::vector<unsigned char> bytes(values.size() * bytes_of(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint16_t small = type == ONEBIT_FLOAT16 ? to_half(values[i]) : to_bfloat(values[i]);
        const void* const from = type == ONEBIT_FLOAT32 ? static_cast<const void*>(&values[i]) : &small;
        std::memcpy(bytes.data() + i * bytes_of(type), from, bytes_of(type));
    }
    return bytes;
}

// The values of such bytes.
inline std::vector<float> as_floats(const std::vector<unsigned char>& bytes, onebit_datatype_t type) {
    std::vector<float> values(bytes.size() / bytes_of(type));
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t small = 0;
        std::memcpy(type == ONEBIT_FLOAT32 ? static_cast<void*>(&values[i]) : &small, bytes.data() + i * bytes_of(type),
                    bytes_of(type));
        if (type == ONEBIT_FLOAT16) values[i] = from_half(small);
        if (type == ONEBIT_BFLOAT16) values[i] = from_bfloat(small);
    }
    return values;
}

// Parameters as converted into their copies: a finite value stays finite.
inline std::vector<unsigned char> copied(std::vector<float> parameters, onebit_datatype_t type) {
    const float most = type == ONEBIT_FLOAT16 ? 65504.0f : type == ONEBIT_BFLOAT16 ? 0x1.fep127f : FLT_MAX;
    for (float& x : parameters) {
        if (std::isfinite(x)) x = std::clamp(x, -most, most);
    }
    return converted(parameters, type);
}

} // namespace onebit_test
