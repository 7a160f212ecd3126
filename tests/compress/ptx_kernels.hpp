// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The kernels that ptx_to_cpp.py generates, and the functions that the generated code uses.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>

#include "support/emulated_gpu.hpp"

namespace onebit_test {

using PtxKernel = void (*)(const EmulatedThread& thread, const void* parameters, void* shared);

/// By their names in the PTX.
const std::map<std::string, PtxKernel>& ptx_kernels();

/// A register's bits as another type; for an integer, the lowest bits that the type has room for.
template <typename T, typename From>
T as(From value) {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<From>) {
        return static_cast<T>(value);
    } else {
        return std::bit_cast<T>(value);
    }
}

template <typename T>
T loaded(const std::byte* place) {
    T value;
    std::memcpy(&value, place, sizeof(T));
    return value;
}
template <typename T>
T loaded(std::uint64_t place) {
    return loaded<T>(reinterpret_cast<const std::byte*>(place));
}
template <typename T>
void store(std::byte* place, T value) {
    std::memcpy(place, &value, sizeof(T));
}
template <typename T>
void store(std::uint64_t place, T value) {
    store(reinterpret_cast<std::byte*>(place), value);
}

/// A subnormal number becomes the zero of its sign.
inline float flushed(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return (bits & 0x7f800000U) == 0 ? std::bit_cast<float>(bits & 0x80000000U) : value;
}

/// If one of two floats is a NaN: the other one.
template <typename T>
T least(T a, T b) {
    return b < a || a != a ? b : a;
}
template <typename T>
T most(T a, T b) {
    return b > a || a != a ? b : a;
}

template <typename T>
T shifted_left(T value, std::uint32_t by) {
    return by < 8 * sizeof(T) ? static_cast<T>(value << by) : T{0};
}
/// A negative number is filled up with ones.
template <typename T>
T shifted_right(T value, std::uint32_t by) {
    if (by < 8 * sizeof(T)) return static_cast<T>(value >> by);
    return value < T{0} ? static_cast<T>(~T{0}) : T{0};
}

/// Four of the eight bytes of `high` and `low`: digit i of `which`, of four bits, is the number of byte i's source. A
/// digit of 8 or more would copy a sign, which is not supported here.
inline std::uint32_t permuted(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
    const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
    std::uint32_t permuted = 0;
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint32_t digit = which >> 4 * i & 15U;
        if (digit >= 8) std::abort();
        permuted |= static_cast<std::uint32_t>(bytes >> 8 * digit & 255U) << 8 * i;
    }
    return permuted;
}

/// `into` with its bits from bit `at` on replaced by the lowest bits of `bits`.
inline std::uint32_t with_bits(std::uint32_t bits, std::uint32_t into, std::uint32_t at, std::uint32_t length) {
    const std::uint32_t mask = ((length < 32 ? 1U << length : 0U) - 1U) << at;
    return (into & ~mask) | (bits << at & mask);
}

} // namespace onebit_test
