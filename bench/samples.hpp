// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the kernels' benchmarks, on the CPU and on the GPU, are fed with, and what becomes of their times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace onebit::bench {

// One Gaussian block after another would take longer to make than to measure: a few hundred, repeated.
inline void fill_with_gaussians(float* values, std::size_t count, std::mt19937& generator) {
    std::normal_distribution<float> gaussian;
    const std::size_t period = std::min<std::size_t>(count, 1U << 20U);
    for (std::size_t i = 0; i < period; ++i) values[i] = gaussian(generator);
    for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
}

inline double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    const std::size_t half = times.size() / 2;
    return times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
}

} // namespace onebit::bench
