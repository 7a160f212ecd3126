// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/cuda/block_kernels.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "core/cuda/check.hpp"

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

/// What begins with `first` saying that there is none.
template <typename Arguments>
Status search(const char* name, const Arguments& arguments, Stream stream) {
    static_assert(kAllFinite == ~0ULL); // every byte is 0xff
    ONEBIT_RETURN_IF_ERROR(check(name, cudaMemsetAsync(arguments.first, 0xff, sizeof(*arguments.first), stream)));
    return launch(name, arguments, stream);
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
    return search("first_nonfinite", arguments, stream);
}

Status first_nonfinite_scale(const FirstNonfiniteScaleArguments& arguments, Stream stream) {
    return search("first_nonfinite_scale", arguments, stream);
}

} // namespace onebit::cuda
