// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/check.hpp"
#include "core/cuda/device.hpp"
#include "core/status.hpp"
#include "numeric/cuda/thread_block.hpp"

/// From a block_kernels.hpp to a GPU.
namespace onebit::cuda {

/// This thread, in the form that a block_kernels.hpp is written for.
struct DeviceThread {
    __device__ unsigned row() const { return blockIdx.y; }
    __device__ unsigned block() const { return blockIdx.x; } // of its row
    __device__ unsigned warp() const { return threadIdx.x / kLanes; }
    __device__ unsigned lane() const { return threadIdx.x % kLanes; }
    __device__ std::uint32_t ballot(bool vote) const { return __ballot_sync(~0U, vote); }
    template <typename T>
    __device__ T shuffle(T value, unsigned lane) const {
        return __shfl_sync(~0U, value, static_cast<int>(lane));
    }
    template <typename T>
    __device__ T shuffle_down(T value, unsigned distance) const {
        return __shfl_down_sync(~0U, value, distance);
    }
    __device__ void sync() const { __syncthreads(); }
    __device__ void lower(unsigned long long* place, unsigned long long value) const { atomicMin(place, value); }
};

template <typename Arguments>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<Arguments>)
    kernel(const __grid_constant__ Arguments arguments) {
    __shared__ Scratch scratch;
    run(DeviceThread(), arguments, scratch);
}

/// Runs run(thread, arguments, scratch) for the threads of rows_of(arguments) rows of blocks_of(arguments) thread
/// blocks.
template <typename Arguments>
Status launch(const char* name, const Arguments& arguments, Stream stream) {
    static_assert(sizeof(Arguments) <= 4096); // what any CUDA takes
    const std::size_t blocks = blocks_of(arguments);
    if (blocks == 0) return {}; // nothing to do, and no launch that CUDA would accept
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(rows_of(arguments)));
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    return check(name, cudaLaunchKernelEx(&config, kernel<Arguments>, arguments));
}

} // namespace onebit::cuda
