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

/// to[i] += from[i].
struct AddArguments {
    const float* from;
    std::size_t count;
    float* to;
};
Status add(const AddArguments& arguments, Stream stream);

/// to[i] = factor from[i]; in place where they are the same.
struct ScaleArguments {
    const float* from;
    float factor;
    std::size_t count;
    float* to;
};
Status scale(const ScaleArguments& arguments, Stream stream);

} // namespace onebit::cuda
