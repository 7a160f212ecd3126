// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "compress/sign/cuda/block_kernels.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "compress/sign/cuda/launch.cuh"

namespace onebit::cuda {

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
