// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "core/rounded.hpp"
#include "numeric/cuda/kernels.hpp"
#include "numeric/cuda/thread_block.hpp"
#include "numeric/mean.hpp"

/// What the kernels do, thread by thread (thread_block.hpp).
namespace onebit::cuda {

inline std::size_t blocks_of(const SumArguments& arguments) {
    return ceil_divide(arguments.count, kBlockElements);
}

inline std::size_t blocks_of(const FirstNonfiniteArguments& arguments) {
    return ceil_divide(arguments.count, kBlockElements);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SumArguments& arguments, Scratch& /*scratch*/) {
    const Share share = share_of(thread, Block{{0, 0, arguments.count}, thread.block()});
    float sums[kGroups];
    load(share, arguments.parts[0], sums);
    for (std::size_t p = 1; p < arguments.size; ++p) {
        float addends[kGroups];
        load(share, arguments.parts[p], addends);
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) sums[g] = rounded::add(sums[g], addends[g]);
    }
    float* const to = arguments.to + share.begin;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (!share.has(g)) continue;
        const auto value_of = [&](std::size_t p) { return arguments.parts[p][share.begin + share.at(g)]; };
        const float mean = rounded::multiply(arguments.factor, sums[g]);
        to[share.at(g)] = checked_mean(mean, arguments.size, arguments.factor, value_of);
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const FirstNonfiniteArguments& arguments, Scratch& /*scratch*/) {
    const Share share = share_of(thread, Block{{0, 0, arguments.count}, thread.block()});
    float values[kGroups];
    load(share, arguments.values, values);
    unsigned first = kBlockElements;
#pragma unroll
    for (unsigned g = kGroups; g-- > 0;) {
        if (!is_within(std::bit_cast<std::uint32_t>(values[g]), arguments.limit)) first = share.at(g);
    }
    if (first < kBlockElements) thread.lower(arguments.first, share.begin + first);
}

} // namespace onebit::cuda
