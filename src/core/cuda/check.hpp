// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "core/status.hpp"

namespace onebit::cuda {

/// UNSUPPORTED where there is no device or no code for it, else INTERNAL; the message names what was tried.
inline Status check(const char* what, cudaError_t error) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError(); // told here: the program's own next check shall not find it
    const bool no_device =
        error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorNoKernelImageForDevice;
    const char* const text = error == cudaErrorInsufficientDriver // which is also said where there is none
                                 ? "there is no CUDA driver here, or one older than this build's CUDA"
                                 : cudaGetErrorString(error);
    return Status::error(no_device ? ONEBIT_ERROR_UNSUPPORTED : ONEBIT_ERROR_INTERNAL, "CUDA %s: %s", what, text);
}

} // namespace onebit::cuda
