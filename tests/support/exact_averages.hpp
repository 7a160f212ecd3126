// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Exact averages in rank order, and values to average: cheap ones, different for each element, rank and step.
#pragma once

#include <cstdint>
#include <vector>

#include "support/handles.hpp"

namespace onebit_test {

inline onebit_allreduce_config_t dense_config(std::uint64_t count) {
    return form_config(ONEBIT_ALGORITHM_DENSE, count);
}

inline std::vector<float> input_of(std::uint64_t count, int rank, std::uint64_t step) {
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i)
        values[i] =
            static_cast<float>((i * 7 + static_cast<std::uint64_t>(rank) * 13 + step * 29) % 1009) * 0.37f - 150;
    return values;
}

// In rank order, in float32.
inline std::vector<float> average(std::uint64_t count, int ranks, std::uint64_t step) {
    std::vector<float> sum = input_of(count, 0, step);
    for (int r = 1; r < ranks; ++r) {
        const std::vector<float> values = input_of(count, r, step);
        for (std::uint64_t i = 0; i < count; ++i) sum[i] += values[i];
    }
    const float share = 1.0f / static_cast<float>(ranks);
    for (float& value : sum) value *= share;
    return sum;
}

} // namespace onebit_test
