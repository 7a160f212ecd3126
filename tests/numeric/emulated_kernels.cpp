// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Kernels on plain values without a GPU, run by emulated threads.

#include "compress/emulated_launch.hpp"
#include "numeric/cuda/block_kernels.hpp"

namespace onebit::cuda {

Status check_code() {
    if (onebit_test::current_gpu() != onebit_test::kGpuWithoutCode) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "GPU %d has a compute capability of long ago",
                         onebit_test::kGpuWithoutCode);
}

Status sum(const SumArguments& arguments, Stream) {
    return launch_emulated(arguments);
}

Status begin_search(unsigned long long* first, Stream) {
    onebit_test::finish_copies();
    *onebit_test::on_device(first) = kAllFinite;
    return {};
}

Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream stream) {
    ONEBIT_RETURN_IF_ERROR(begin_search(arguments.first, stream));
    return launch_emulated(arguments);
}

} // namespace onebit::cuda
