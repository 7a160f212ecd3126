// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels without a GPU: emulated threads run the kernels that kernels.cu launches.

#include "compress/emulated_launch.hpp"

namespace onebit::cuda {
Status encode(const Rows<EncodeArguments>& slices, Stream) {
    return launch_emulated(slices);
}
Status average_encode(const AverageEncodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status seal(const SealArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status decode(const Rows<DecodeArguments>& slices, Stream) {
    return launch_emulated(slices);
}
Status first_nonfinite_scale(const Rows<FirstNonfiniteScaleArguments>& slices, bool begin, Stream stream) {
    if (begin) ONEBIT_RETURN_IF_ERROR(begin_search(slices[0].first, stream));
    return launch_emulated(slices);
}

Status encode(const Rows<GroupedEncodeArguments>& slices, Stream) {
    return launch_emulated(slices);
}
Status average_encode(const GroupedAverageEncodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status decode(const Rows<GroupedDecodeArguments>& slices, Stream) {
    return launch_emulated(slices);
}
Status first_nonfinite_group(const Rows<FirstNonfiniteGroupArguments>& slices, bool begin, Stream stream) {
    if (begin) ONEBIT_RETURN_IF_ERROR(begin_search(slices[0].first, stream));
    return launch_emulated(slices);
}

} // namespace onebit::cuda
