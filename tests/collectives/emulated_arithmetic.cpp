// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of sums without a GPU, run by emulated threads.

#include "collectives/cuda/block_kernels.hpp"
#include "compress/emulated_launch.hpp"

namespace onebit::cuda {

Status add(const AddArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status scale(const ScaleArguments& arguments, Stream) {
    return launch_emulated(arguments);
}

} // namespace onebit::cuda
