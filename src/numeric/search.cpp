// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/search.hpp"

#include <cmath>

namespace onebit {

std::size_t first_beyond(const NumericKernels& kernels, float limit, const float* values, std::size_t count) {
    if (kernels.all_within(values, count, limit)) return count;
    std::size_t i = 0;
    while (std::fabs(values[i]) <= limit) ++i;
    return i;
}

std::size_t HostSearch::first_nonfinite(const void* values, std::size_t count) {
    if (elements_.all_finite(values, count)) return count;
    std::size_t i = 0;
    while (std::isfinite(elements_.value(values, i))) ++i;
    return i;
}

} // namespace onebit
