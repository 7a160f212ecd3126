// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "numeric/cuda/rows.hpp"
#include "numeric/lanes.hpp"

/// What all kernels have in common. They are written for any `Thread` that knows its indices and can communicate with
/// the threads beside it: a GPU's (launch.cuh), or one that a test emulates. A kernel is a function run(thread,
/// arguments, scratch), and blocks_of(arguments): its number of thread blocks (for rows: of each row).
///
/// A thread block stands for a block of 4096 elements. Each warp takes 16 consecutive groups of 32 elements, each
/// thread the element of its own lane in every group. So a warp's load or store is 128 bytes in a row, and all loads of
/// a thread are under way before the first is used.
namespace onebit::cuda {

inline constexpr unsigned kWarps = 8;
inline constexpr unsigned kThreads = kWarps * kLanes;
/// Groups of 32 elements, or words of signs, that a warp works on.
inline constexpr unsigned kGroups = kBlockElements / kThreads;

/// Shared memory of a thread block.
union Scratch {
    float values[kBlockElements];
    double sums[kThreads];
};

template <typename Arguments>
std::size_t blocks_of(const Rows<Arguments>& rows) {
    std::size_t most = 0;
    for (std::size_t row = 0; row < rows.count(); ++row) most = std::max(most, blocks_of(rows[row]));
    return most;
}

/// The number of rows of thread blocks.
template <typename Arguments>
std::size_t rows_of(const Arguments& /*arguments*/) {
    return 1;
}
template <typename Arguments>
std::size_t rows_of(const Rows<Arguments>& rows) {
    return rows.count();
}

/// Thread blocks that a multiprocessor must have registers for, at the same time; 0: as the compiler likes.
template <typename Arguments>
inline constexpr unsigned kResidentBlocks = 0;

/// A thread's share of a block: one element in each of its warp's groups.
struct Share {
    std::size_t begin; ///< the block's first element, counted from the chunk's
    unsigned count;    ///< elements in the block
    unsigned first;    ///< the thread's first element in it

    ONEBIT_DEVICE unsigned at(unsigned group) const { return first + group * static_cast<unsigned>(kLanes); }
    ONEBIT_DEVICE bool has(unsigned group) const { return at(group) < count; }
};

template <typename Thread>
ONEBIT_DEVICE Share share_of(const Thread& thread, const Block& block) {
    return {block.index * kBlockElements, static_cast<unsigned>(block.count()),
            thread.warp() * kGroups * static_cast<unsigned>(kLanes) + thread.lane()};
}

/// The thread's elements of a buffer; 0 past the block's end.
ONEBIT_DEVICE inline void load(const Share& share, const float* buffer, float (&values)[kGroups]) {
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) values[g] = share.has(g) ? buffer[share.begin + share.at(g)] : 0;
}

/// For a finite limit; false for a NaN.
ONEBIT_DEVICE inline bool is_within(std::uint32_t float_bits, float limit) {
    return (float_bits & 0x7fffffffU) <= std::bit_cast<std::uint32_t>(limit);
}

/// A thread of a row. The surplus blocks of a short row have nothing to do.
template <typename Thread, typename Arguments>
ONEBIT_DEVICE void run(const Thread& thread, const Rows<Arguments>& rows, Scratch& scratch) {
    const Arguments& own = rows[thread.row()];
    if (thread.block() < blocks_of(own)) run(thread, own, scratch);
}

} // namespace onebit::cuda
