// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Bits that are the same on all ranks: they follow from numbers that all know.
namespace onebit {

inline constexpr std::uint32_t kFirstMixer = 0x85ebca6bU;
inline constexpr std::uint32_t kSecondMixer = 0xc2b2ae35U;

/// MurmurHash3's finalizer: every bit of `x` affects every bit of the result.
constexpr std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ x >> 16) * kFirstMixer;
    x = (x ^ x >> 13) * kSecondMixer;
    return x ^ x >> 16;
}

/// 2^32 over the golden ratio: keeps 0 from being drawn by 0.
inline constexpr std::uint32_t kGolden = 0x9e3779b9U;

/// The seed for one of several things in a call.
constexpr std::uint32_t seed_of(std::uint32_t call, std::uint32_t thing) {
    return mixed(mixed(call + kGolden) + thing);
}

/// Number `i` of those drawn from a seed.
constexpr std::uint32_t drawn(std::uint32_t seed, std::uint32_t i) {
    return mixed(seed + (i + 1) * kGolden);
}

} // namespace onebit
