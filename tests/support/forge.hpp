// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Saved states whose checksums are always right, whatever they contain: docs/WIRE_FORMAT.md has the layouts.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <limits>

#include "support/ranks.hpp"

namespace onebit_test {

template <typename T>
T get(const Bytes& bytes, std::size_t at) {
    T value{};
    if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
}

template <typename T>
void put(Bytes& bytes, std::size_t at, T value) {
    if (at + sizeof(T) <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// The beginning of every file: kind, version, rank, ranks, sequence, save.
constexpr std::size_t kSequenceAt = 20, kSaveAt = 24;

// A saved allreduce.
constexpr std::size_t kStateHeader = 112, kStateCallsAt = 88, kStateChecksumAt = 104;

inline void repair_state(Bytes& bytes) {
    if (bytes.size() < kStateHeader) return;
    put(bytes, kStateChecksumAt, XXH3_64bits(bytes.data() + kStateHeader, bytes.size() - kStateHeader));
    put(bytes, kStateChecksumAt, XXH3_64bits(bytes.data(), kStateHeader));
}

// A saved optimizer.
constexpr std::size_t kOptimizerHeader = 104, kArraysAt = 32, kSeatAt = 36, kNumbersAt = 40, kKindAt = 48,
                      kStageAt = 52, kShapeAt = 64, kHeadBytesAt = 72, kAllBytesAt = 80, kHeadChecksumAt = 88,
                      kTailChecksumAt = 96, kRowBytes = 40;

inline void repair_optimizer(Bytes& bytes) {
    if (bytes.size() < kOptimizerHeader) return;
    const std::size_t head = std::min<std::size_t>(
        std::max<std::uint64_t>(get<std::uint64_t>(bytes, kHeadBytesAt), kOptimizerHeader), bytes.size());
    put(bytes, kTailChecksumAt, XXH3_64bits(bytes.data() + head, bytes.size() - head));
    put(bytes, kHeadChecksumAt, XXH3_64bits(bytes.data() + kOptimizerHeader, head - kOptimizerHeader));
    put(bytes, kHeadChecksumAt, XXH3_64bits(bytes.data(), kOptimizerHeader));
}

// The places in a saved optimizer where numbers, rows and values begin.
inline std::size_t rows_at(const Bytes& bytes) {
    return kOptimizerHeader + 8 * get<std::uint64_t>(bytes, kNumbersAt);
}
inline std::size_t values_at(const Bytes& bytes) {
    return rows_at(bytes) + kRowBytes * get<std::uint32_t>(bytes, kArraysAt);
}

// Bit patterns that may be invalid for some number, whatever its type.
inline const std::vector<std::uint64_t>& nasty_numbers() {
    const auto bits = [](double value) {
        std::uint64_t pattern = 0;
        std::memcpy(&pattern, &value, sizeof(value));
        return pattern;
    };
    static const std::vector<std::uint64_t> numbers = {0,
                                                       1,
                                                       2,
                                                       3,
                                                       5,
                                                       7,
                                                       64,
                                                       1000,
                                                       std::uint64_t{1} << 20,
                                                       std::uint64_t{1} << 31,
                                                       std::uint64_t{1} << 32,
                                                       (std::uint64_t{1} << 48) - 1,
                                                       std::uint64_t{1} << 48,
                                                       std::uint64_t{1} << 62,
                                                       std::uint64_t{1} << 63,
                                                       ~std::uint64_t{0},
                                                       ~std::uint64_t{1},
                                                       bits(std::numeric_limits<double>::quiet_NaN()),
                                                       bits(std::numeric_limits<double>::infinity()),
                                                       bits(-std::numeric_limits<double>::infinity()),
                                                       bits(-1.0),
                                                       bits(-0.0),
                                                       bits(0.5),
                                                       bits(3.0),
                                                       bits(1e-320),
                                                       bits(1e-45),
                                                       bits(1e-39),
                                                       bits(1e38),
                                                       bits(1e39),
                                                       bits(1e300)};
    return numbers;
}

inline const std::vector<float>& nasty_floats() {
    using Limits = std::numeric_limits<float>;
    static const std::vector<float> floats = {
        Limits::quiet_NaN(),  Limits::signaling_NaN(), Limits::infinity(), -Limits::infinity(), -1.0F, -0.0F, 0.0F,
        Limits::denorm_min(), -Limits::denorm_min(),   Limits::max(),      -Limits::max(),      1e30F, 1e-30F};
    return floats;
}

} // namespace onebit_test
