// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "core/status.hpp"

namespace onebit::cuda {

inline constexpr const char* kNoStream = "config.stream is no stream of its GPU, or was destroyed";

/// What an error of the runtime's means to a caller: an invalid stream is INVALID_ARGUMENT; no driver, a driver that
/// doesn't suit this build, no device and no code for the device are UNSUPPORTED. Any other error is the device's
/// failure, or ours.
constexpr onebit_status_t code_of(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return ONEBIT_SUCCESS;
        case cudaErrorInvalidResourceHandle:
            return ONEBIT_ERROR_INVALID_ARGUMENT;
        case cudaErrorMemoryAllocation:
            return ONEBIT_ERROR_OUT_OF_MEMORY;
        case cudaErrorStubLibrary:
        case cudaErrorInsufficientDriver:
        case cudaErrorCallRequiresNewerDriver:
        case cudaErrorSystemDriverMismatch:
        case cudaErrorCompatNotSupportedOnDevice:
        case cudaErrorNoDevice:
        case cudaErrorInvalidDevice:
        case cudaErrorInvalidDeviceFunction:
        case cudaErrorNoKernelImageForDevice:
        case cudaErrorUnsupportedPtxVersion:
            return ONEBIT_ERROR_UNSUPPORTED;
        default:
            return ONEBIT_ERROR_INTERNAL;
    }
}

/// The error as a Status; the message names what was tried.
inline Status check(const char* what, cudaError_t error) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError(); // reported here: the program's own next check must not find it
    const char* text = cudaGetErrorString(error);
    if (error == cudaErrorInvalidResourceHandle) text = kNoStream;
    if (error == cudaErrorInsufficientDriver) { // also returned where there is no driver
        text = "there is no CUDA driver here, or one older than this build's CUDA";
    }
    return Status::error(code_of(error), "CUDA %s: %s", what, text);
}

} // namespace onebit::cuda
