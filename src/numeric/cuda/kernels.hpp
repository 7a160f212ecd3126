// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cstddef>

#include "core/cuda/device.hpp"
#include "core/status.hpp"

/// Operations on plain values on a GPU. All pointers are to device memory. Floats may have any alignment that a float
/// may have.
///
/// Every function puts its work into the stream and returns: it waits for nothing, allocates nothing and reads nothing
/// that its arguments point to, so it can be captured into a graph. It needs the stream's device to be the current one.
/// Its status says whether the launch was accepted: UNSUPPORTED where there is no device or no code for it, else
/// INTERNAL, and the message names the kernel. Waiting for the stream reports what goes wrong on the device.
namespace onebit::cuda {

/// UNSUPPORTED where this build's kernels have no code for the current GPU.
Status check_code();

/// to[i] = factor (parts[0][i] + parts[1][i] + ...), added up in this order; `to` may be one of them. Where this is not
/// finite, and the factor is not 1, the same in double, which is finite.
inline constexpr std::size_t kMostParts = 256;
struct SumArguments {
    const float* parts[kMostParts];
    std::size_t size; ///< of parts, one at least
    float factor;
    std::size_t count; ///< elements of each
    float* to;
};
Status sum(const SumArguments& arguments, Stream stream);

/// What a search leaves where it has found nothing.
inline constexpr unsigned long long kAllFinite = ~0ULL;
/// Nothing has been found yet.
Status begin_search(unsigned long long* first, Stream stream);

/// Finds the index of the first NaN or infinity, or of the first magnitude beyond a limit. Begins the search.
struct FirstNonfiniteArguments {
    const float* values;
    std::size_t count;
    unsigned long long* first; ///< one number; need not be set before
    float limit = FLT_MAX;     ///< the largest magnitude that is none of them
};
Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream stream);

} // namespace onebit::cuda
