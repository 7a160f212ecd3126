// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "numeric/cuda/block_kernels.hpp"
#include "numeric/cuda/kernels.hpp"
#include "numeric/cuda/launch.cuh"

namespace onebit::cuda {
namespace {

/// What the kernels are compiled for, in words: "8.0, 9.0".
std::string architectures() {
    std::string text;
    for (const int architecture : {__CUDA_ARCH_LIST__}) { // 800, 900
        if (!text.empty()) text += ", ";
        text += std::to_string(architecture / 100) + "." + std::to_string(architecture % 100 / 10);
    }
    return text;
}

} // namespace

/// All kernels are compiled alike, so one stands for them.
Status check_code() {
    cudaFuncAttributes attributes{};
    const Status found = check("kernels", cudaFuncGetAttributes(&attributes, kernel<SumArguments>));
    int device = 0;
    int major = 0;
    int minor = 0;
    if (found.code() != ONEBIT_ERROR_UNSUPPORTED || cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
        return found;
    }
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "GPU %d has compute capability %d.%d, this libonebit is for %s (CMAKE_CUDA_ARCHITECTURES): %s",
                         device, major, minor, architectures().c_str(), found.message().c_str());
}

Status sum(const SumArguments& arguments, Stream stream) {
    return launch("sum", arguments, stream);
}

Status begin_search(unsigned long long* first, Stream stream) {
    static_assert(kAllFinite == ~0ULL); // every byte is 0xff
    return check("search", cudaMemsetAsync(first, 0xff, sizeof(*first), stream));
}

Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream stream) {
    ONEBIT_RETURN_IF_ERROR(begin_search(arguments.first, stream));
    return launch("first_nonfinite", arguments, stream);
}

} // namespace onebit::cuda
