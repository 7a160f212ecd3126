// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/cuda/block_kernels.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "numeric/cuda/launch.cuh"

namespace onebit::cuda {
Status encode(const Rows<EncodeArguments>& slices, Stream stream) {
    return launch("encode", slices, stream);
}

Status average_encode(const AverageEncodeArguments& arguments, Stream stream) {
    return launch("average_encode", arguments, stream);
}

Status seal(const SealArguments& arguments, Stream stream) {
    return launch("seal", arguments, stream);
}

Status decode(const Rows<DecodeArguments>& slices, Stream stream) {
    return launch("decode", slices, stream);
}

Status first_nonfinite_scale(const Rows<FirstNonfiniteScaleArguments>& slices, bool begin, Stream stream) {
    if (begin) ONEBIT_RETURN_IF_ERROR(begin_search(slices[0].first, stream));
    return launch("first_nonfinite_scale", slices, stream);
}

} // namespace onebit::cuda
