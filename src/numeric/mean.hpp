// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"

/// Means of values whose sum overflows float32, where the mean doesn't: for the rare element, on CPU and GPU alike.
namespace onebit {

/// False for a NaN.
ONEBIT_HOST_DEVICE inline bool is_finite(float value) {
    return std::fabs(value) <= FLT_MAX;
}

/// Whether all values of an array in the host's memory are finite. Compares their bits as signed integers: SSE2, which
/// every x86-64 has, can't compare unsigned ones.
inline bool all_finite(const float* values, std::size_t count) {
    std::int32_t beyond = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const auto magnitude = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
        beyond |= magnitude > 0x7f7fffff ? -1 : 0;
    }
    return beyond == 0;
}

/// The nearest float that is finite, if the value is.
ONEBIT_HOST_DEVICE inline float nearest_finite(double value) {
    if (std::fabs(value) > DBL_MAX) return static_cast<float>(value);
    if (value > FLT_MAX) return FLT_MAX;
    return value < -FLT_MAX ? -FLT_MAX : static_cast<float>(value);
}

/// (value_of(0) + value_of(1) + ...) * share, in double; finite if all values are, share being about 1 / parts.
template <typename ValueOf>
ONEBIT_HOST_DEVICE float mean_in_double(std::size_t parts, float share, const ValueOf& value_of) {
    double sum = value_of(std::size_t{0});
    for (std::size_t p = 1; p < parts; ++p) sum = rounded::add(sum, static_cast<double>(value_of(p)));
    return nearest_finite(rounded::multiply(sum, static_cast<double>(share)));
}

/// `mean`, the same in float, corrected if it overflowed. A sum (share 1) stays as it is.
template <typename ValueOf>
ONEBIT_HOST_DEVICE float checked_mean(float mean, std::size_t parts, float share, const ValueOf& value_of) {
    return is_finite(mean) || share == 1 ? mean : mean_in_double(parts, share, value_of);
}

/// (value_of(0) + value_of(1) + ...) * share, added in this order; checked.
template <typename ValueOf>
float mean_of(std::size_t parts, float share, const ValueOf& value_of) {
    float total = value_of(std::size_t{0});
    for (std::size_t p = 1; p < parts; ++p) total += value_of(p);
    return checked_mean(total * share, parts, share, value_of);
}

/// The same for parts[0][i], parts[1][i], ...
inline float mean_of(const float* const* parts, std::size_t part_count, std::size_t i, float share) {
    return mean_of(part_count, share, [=](std::size_t p) { return parts[p][i]; });
}

} // namespace onebit
