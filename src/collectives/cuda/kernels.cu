// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/cuda/kernels.hpp"

#include "collectives/cuda/block_kernels.hpp"
#include "compress/sign/cuda/launch.cuh"

namespace onebit::cuda {

Status add(const AddArguments& arguments, Stream stream) {
    return launch("add", arguments, stream);
}

Status scale(const ScaleArguments& arguments, Stream stream) {
    return launch("scale", arguments, stream);
}

} // namespace onebit::cuda
