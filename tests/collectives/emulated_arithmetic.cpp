// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of sums without a GPU, run by emulated threads.

#include "collectives/cuda/block_kernels.hpp"
#include "compress/emulated_launch.hpp"

namespace onebit::cuda {

Status check_code() {
    if (onebit_test::current_gpu() != onebit_test::kGpuWithoutCode) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "GPU %d has a compute capability of long ago",
                         onebit_test::kGpuWithoutCode);
}

Status sum(const SumArguments& arguments, Stream) {
    return launch_emulated(arguments);
}

} // namespace onebit::cuda
