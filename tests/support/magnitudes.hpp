// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Values of all magnitudes that a float has, denormals and the largest ones among them, mixed within one buffer.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <vector>

#include "support/data.hpp"

namespace onebit_test {

// The kinds of values, which steps take in turn.
inline constexpr std::uint64_t magnitude_turns = 6;

inline float value_of_magnitude(Random& random, int least, int most, bool signs) {
    const double exponent = least + (most - least) * random.uniform();
    const double value = std::min(std::ldexp(1 + random.uniform(), static_cast<int>(std::floor(exponent))),
                                  static_cast<double>(FLT_MAX));
    return static_cast<float>(signs && random.uniform() < 0.5 ? -value : value);
}

// Turn 0: every magnitude; 1: the largest float, of one sign; 2: of both signs; 3: values near it; 4: denormals and
// values near them; 5: about 1, except a few of any magnitude.
inline std::vector<float> make_magnitudes(std::size_t count, std::uint64_t seed, int rank, std::uint64_t step) {
    Random random(seed, rank, step);
    const std::uint64_t turn = (step + seed) % magnitude_turns;
    std::vector<float> values(count);
    for (float& value : values) {
        const bool rare = random.uniform() < 0.01;
        if (turn == 0 || (turn == 5 && rare))
            value = value_of_magnitude(random, -149, 128, true);
        else if (turn == 1)
            value = FLT_MAX;
        else if (turn == 2)
            value = random.uniform() < 0.5 ? FLT_MAX : -FLT_MAX;
        else if (turn == 3)
            value = value_of_magnitude(random, 124, 128, rare);
        else if (turn == 4)
            value = value_of_magnitude(random, -149, -118, true);
        else
            value = static_cast<float>(random.gaussian());
    }
    return values;
}

inline bool all_finite(const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// Whether `average` is the exact average of all ranks' values of this seed and step, except for the roundings of a sum
// in float and for the possible flush to zero of each addend.
inline bool is_average_of_magnitudes(const std::vector<float>& average, std::uint64_t seed, int ranks,
                                     std::uint64_t step) {
    std::vector<double> sum(average.size()), magnitude(average.size());
    for (int r = 0; r < ranks; ++r) {
        const std::vector<float> values = make_magnitudes(average.size(), seed, r, step);
        for (std::size_t i = 0; i < values.size(); ++i) {
            sum[i] += values[i];
            magnitude[i] += std::fabs(values[i]);
        }
    }
    for (std::size_t i = 0; i < average.size(); ++i) {
        const double lost = std::fabs(sum[i] / ranks - average[i]);
        if (!(lost <= magnitude[i] * 0x1p-22 + ranks * 0x1p-124)) return false;
    }
    return true;
}

} // namespace onebit_test
