// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels without a GPU: what kernels.cu launches, run by emulated threads.

#include "compress/sign/cuda/block_kernels.hpp"
#include "support/emulated_device.hpp"
#include "support/emulated_gpu.hpp"

namespace onebit::cuda {
namespace {

template <typename Arguments>
Status launch(const Arguments& arguments) {
    const onebit_test::OnDevice on_device;
    onebit_test::run_on_emulated_gpu<kWarps, Scratch>(
        blocks_of(arguments), [&](const auto& thread, Scratch& scratch) { run(thread, arguments, scratch); });
    return {};
}

template <typename Arguments>
Status search(const Arguments& arguments) {
    const onebit_test::OnDevice on_device;
    *arguments.first = kAllFinite;
    return launch(arguments);
}

} // namespace

Status encode(const EncodeArguments& arguments, Stream) {
    return launch(arguments);
}
Status blend_encode(const BlendEncodeArguments& arguments, Stream) {
    return launch(arguments);
}
Status average_encode(const AverageEncodeArguments& arguments, Stream) {
    return launch(arguments);
}
Status seal(const SealArguments& arguments, Stream) {
    return launch(arguments);
}
Status decode(const DecodeArguments& arguments, Stream) {
    return launch(arguments);
}
Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream) {
    return search(arguments);
}
Status first_nonfinite_scale(const FirstNonfiniteScaleArguments& arguments, Stream) {
    return search(arguments);
}

} // namespace onebit::cuda
