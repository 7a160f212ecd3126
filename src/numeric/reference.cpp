// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels on plain values, element by element. What every other version is compared with, bit for bit; also what
// runs where no vector instructions are known.

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "numeric/kernels.hpp"
#include "numeric/mean.hpp"

namespace onebit {
namespace {

bool all_within(const float* values, std::size_t count, float limit) {
    for (std::size_t i = 0; i < count; ++i) {
        if (!(std::fabs(values[i]) <= limit)) return false;
    }
    return true;
}

bool copy(const float* values, std::size_t count, Stores /*stores*/, float* to) {
    std::copy_n(values, count, to);
    return all_within(values, count, FLT_MAX);
}

void mean(const float* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
          Stores /*stores*/, float* to, Stores /*also_stores*/, float* also) {
    for (std::size_t i = 0; i < count; ++i) to[i] = also[i] = mean_of(parts, part_count, first + i, share);
}

} // namespace

const NumericKernels& reference_numeric_kernels() {
    static constexpr NumericKernels kKernels = {
        "reference",
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) kernel,
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    };
    return kKernels;
}

} // namespace onebit
