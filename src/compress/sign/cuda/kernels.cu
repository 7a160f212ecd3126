// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/cuda/block_kernels.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "compress/sign/cuda/launch.cuh"

namespace onebit::cuda {
namespace {

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
