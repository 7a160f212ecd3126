// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>

/// Sums in double, in the order in which a GPU adds (numeric/lanes.hpp).
namespace onebit {

/// A block's sum of squares (L2) or magnitudes (L1), for a block whose float sum can't be trusted (is_trusted). Most
/// such blocks are of an unused layer.
double sum_in_double(const float* values, std::size_t count, onebit_scale_t scale);

} // namespace onebit
