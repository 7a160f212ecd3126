// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The statuses that callers get for CUDA's errors.

#include "core/cuda/check.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

TEST_CASE("a caller's mistakes and a machine that lacks something are told from failures", "[cuda]") {
    CHECK(cuda::check("nothing", cudaSuccess).ok());
    CHECK(cuda::code_of(cudaErrorMemoryAllocation) == ONEBIT_ERROR_OUT_OF_MEMORY);
    CHECK(cuda::code_of(cudaErrorIllegalAddress) == ONEBIT_ERROR_INTERNAL);
    for (const cudaError_t error :
         {cudaErrorStubLibrary, cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver,
          cudaErrorSystemDriverMismatch, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorNoKernelImageForDevice}) {
        CAPTURE(static_cast<int>(error));
        CHECK(cuda::code_of(error) == ONEBIT_ERROR_UNSUPPORTED);
    }
    const Status destroyed = cuda::check("event", cudaErrorInvalidResourceHandle);
    CHECK(destroyed.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK(destroyed.message() == "CUDA event: config.stream is no stream of its GPU, or was destroyed");
}

} // namespace
} // namespace onebit
