// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Test values for kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/partition.hpp"
#include "core/stores.hpp"

namespace onebit {

constexpr std::size_t kCounts[] = {1, 31, 32, 33, 63, 64, 100, 1000, 4095, 4096};
constexpr Stores kAllStores[] = {Stores::kCached, Stores::kPastCaches};

/// The words of a mask, or of signs, for `count` elements.
inline std::vector<std::uint32_t> random_words(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::uint32_t> words(ceil_divide(count, kWordElements));
    for (auto& word : words) word = static_cast<std::uint32_t>(random());
    return words;
}

/// Values of every kind that a sign or a sum could get wrong.
inline std::vector<float> awkward_values(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> gaussian;
    std::vector<float> values(count);
    for (float& value : values) {
        value = gaussian(random);
        switch (random() % 16) {
            case 0:
                value = 0.0F;
                break;
            case 1:
                value = -0.0F;
                break;
            case 2:
                value *= 1e-25F;
                break;
            case 3:
                value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807fffffU);
                break; // subnormal
            case 4:
                value *= 1e15F;
                break;
            default:
                break;
        }
    }
    return values;
}

} // namespace onebit
