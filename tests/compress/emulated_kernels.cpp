// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels without a GPU: what kernels.cu launches, run by emulated threads.

#include "compress/emulated_launch.hpp"

namespace onebit::cuda {
namespace {

void begin_search(unsigned long long* first) {
    onebit_test::finish_copies();
    *onebit_test::on_device(first) = kAllFinite;
}

} // namespace

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
Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream) {
    begin_search(arguments.first);
    return launch_emulated(arguments);
}
Status first_nonfinite_scale(const Rows<FirstNonfiniteScaleArguments>& slices, bool begin, Stream) {
    if (begin) begin_search(slices[0].first);
    return launch_emulated(slices);
}

} // namespace onebit::cuda
