// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' passes without a GPU, run by emulated threads.

#include "compress/emulated_launch.hpp"
#include "optim/kernels/cuda/block_kernels.hpp"
#include "optim/kernels/cuda/gradient_kernels.hpp"
#include "optim/kernels/cuda/kernels.hpp"

namespace onebit::cuda {

template <typename Arguments>
requires requires(Arguments& arguments) {
    arguments.pieces.pieces;
}
auto translate_arrays(Arguments& arguments) {
    return TranslatedArray(arguments.pieces.pieces, arguments.pieces.count, [](Piece& piece) {
        translate(piece.parameters);
        translate(piece.gradients);
        translate(piece.copy);
    });
}

#define ONEBIT_CUDA_PASS(name, arguments)          \
    Status name(const arguments& values, Stream) { \
        return launch_emulated(values);            \
    }
#include "optim/kernels/cuda/passes.def"
#undef ONEBIT_CUDA_PASS

} // namespace onebit::cuda
