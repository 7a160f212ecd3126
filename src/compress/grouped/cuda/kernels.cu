// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/grouped/cuda/block_kernels.hpp"
#include "compress/grouped/cuda/kernels.hpp"
#include "numeric/cuda/launch.cuh"

namespace onebit::cuda {

Status encode(const Rows<GroupedEncodeArguments>& slices, Stream stream) {
    return launch("encode", slices, stream);
}

Status average_encode(const GroupedAverageEncodeArguments& arguments, Stream stream) {
    return launch("average_encode", arguments, stream);
}

Status decode(const Rows<GroupedDecodeArguments>& slices, Stream stream) {
    return launch("decode", slices, stream);
}

Status first_nonfinite_group(const Rows<FirstNonfiniteGroupArguments>& slices, bool begin, Stream stream) {
    if (begin) ONEBIT_RETURN_IF_ERROR(begin_search(slices[0].first, stream));
    return launch("first_nonfinite_group", slices, stream);
}

} // namespace onebit::cuda
