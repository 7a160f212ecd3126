// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Input values of the kernels' benchmarks, on the CPU and on the GPU, and statistics of their times.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <vector>

namespace onebit::bench {

// Drawing every Gaussian block would take longer than the measurement. So a few hundred blocks are repeated.
inline void fill_with_gaussians(float* values, std::size_t count, std::mt19937& generator) {
    std::normal_distribution<float> gaussian;
    const std::size_t period = std::min<std::size_t>(count, 1U << 20U);
    for (std::size_t i = 0; i < period; ++i) values[i] = gaussian(generator);
    for (std::size_t i = period; i < count; ++i) values[i] = values[i - period];
}

// A model's tensors have these sizes, again and again, until its elements are used up.
inline constexpr std::array<std::size_t, 6> kTensorSizes = {1 << 20, 1023, 3 << 18, 4097, 5 << 17, 77};

inline std::vector<std::size_t> cut_into_tensors(std::size_t elements) {
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at < elements; at += sizes.back()) {
        sizes.push_back(std::min(kTensorSizes[sizes.size() % kTensorSizes.size()], elements - at));
    }
    return sizes;
}

inline double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    const std::size_t half = times.size() / 2;
    return times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
}

} // namespace onebit::bench
