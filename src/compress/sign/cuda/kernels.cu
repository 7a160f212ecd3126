// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "compress/sign/cuda/block_kernels.hpp"
#include "compress/sign/cuda/kernels.hpp"

namespace onebit::cuda {
namespace {

/// This thread, to what block_kernels.hpp is written for.
struct DeviceThread {
    __device__ unsigned block() const { return blockIdx.x; }
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
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Arguments arguments) {
    __shared__ Scratch scratch;
    run(DeviceThread(), arguments, scratch);
}

Status check(const char* name, cudaError_t error) {
    if (error == cudaSuccess) return {};
    (void)cudaGetLastError(); // told here: the program's own next check shall not find it
    const bool no_device =
        error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorNoKernelImageForDevice;
    return Status::error(no_device ? ONEBIT_ERROR_UNSUPPORTED : ONEBIT_ERROR_INTERNAL, "CUDA kernel %s: %s", name,
                         cudaGetErrorString(error));
}

template <typename Arguments>
Status launch(const char* name, const Arguments& arguments, Stream stream) {
    const std::size_t blocks = blocks_of(arguments);
    if (blocks == 0) return {}; // nothing to do, and no launch that CUDA would accept
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    return check(name, cudaLaunchKernelEx(&config, kernel<Arguments>, arguments));
}

} // namespace

Status encode(const EncodeArguments& arguments, Stream stream) {
    return launch("encode", arguments, stream);
}

Status blend_encode(const BlendEncodeArguments& arguments, Stream stream) {
    return launch("blend_encode", arguments, stream);
}

Status average_encode(const AverageEncodeArguments& arguments, Stream stream) {
    return launch("average_encode", arguments, stream);
}

Status seal(const SealArguments& arguments, Stream stream) {
    return launch("seal", arguments, stream);
}

Status decode(const DecodeArguments& arguments, Stream stream) {
    return launch("decode", arguments, stream);
}

Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream stream) {
    static_assert(kAllFinite == ~0ULL); // every byte is 0xff
    ONEBIT_RETURN_IF_ERROR(
        check("first_nonfinite", cudaMemsetAsync(arguments.first, 0xff, sizeof(*arguments.first), stream)));
    return launch("first_nonfinite", arguments, stream);
}

} // namespace onebit::cuda
