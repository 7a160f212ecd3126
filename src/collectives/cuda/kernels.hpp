// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/cuda/device.hpp"
#include "core/status.hpp"

/// Arithmetic of exact sums on a GPU. All pointers are to device memory; floats may have any alignment that a float may
/// have. What compress/sign/cuda/kernels.hpp says of streams and statuses is true of these functions as well.
namespace onebit::cuda {

/// UNSUPPORTED where this build's kernels have no code for the current GPU.
Status check_code();

/// to[i] = factor (parts[0][i] + parts[1][i] + ...), added up in this order; `to` may be one of them. Where that is not
/// finite, and the factor not 1, the same in double, which is.
inline constexpr std::size_t kMostParts = 256;
struct SumArguments {
    const float* parts[kMostParts];
    std::size_t size; ///< of them, one at least
    float factor;
    std::size_t count; ///< elements of each
    float* to;
};
Status sum(const SumArguments& arguments, Stream stream);

} // namespace onebit::cuda
