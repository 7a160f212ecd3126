// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/cuda/kernels.hpp"
#include "compress/sign/cuda/block_kernels.hpp"
#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "core/rounded.hpp"

/// What a thread does in each kernel, like the sign codec's: a thread block has 4096 elements.
namespace onebit::cuda {

inline std::size_t blocks_of(const AddArguments& arguments) {
    return ceil_divide(arguments.count, kBlockElements);
}
inline std::size_t blocks_of(const ScaleArguments& arguments) {
    return ceil_divide(arguments.count, kBlockElements);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const AddArguments& arguments, Scratch& /*scratch*/) {
    const Share share = share_of(thread, Block{{0, 0, arguments.count}, thread.block()});
    float from[kGroups];
    float to[kGroups];
    load(share, arguments.from, from);
    load(share, arguments.to, to);
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (share.has(g)) arguments.to[share.begin + share.at(g)] = rounded::add(to[g], from[g]);
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const ScaleArguments& arguments, Scratch& /*scratch*/) {
    const Share share = share_of(thread, Block{{0, 0, arguments.count}, thread.block()});
    float from[kGroups];
    load(share, arguments.from, from);
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (share.has(g)) arguments.to[share.begin + share.at(g)] = rounded::multiply(arguments.factor, from[g]);
    }
}

} // namespace onebit::cuda
