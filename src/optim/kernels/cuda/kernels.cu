// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/cuda/launch.cuh"
#include "optim/kernels/cuda/block_kernels.hpp"
#include "optim/kernels/cuda/gradient_kernels.hpp"
#include "optim/kernels/cuda/kernels.hpp"

namespace onebit::cuda {

#define ONEBIT_CUDA_PASS(name, arguments)                 \
    Status name(const arguments& values, Stream stream) { \
        return launch(#name, values, stream);             \
    }
#include "optim/kernels/cuda/passes.def"
#undef ONEBIT_CUDA_PASS

} // namespace onebit::cuda
