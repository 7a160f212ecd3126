// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Exchanges between all of n ranks in about (r-1) log_r n messages of each rank instead of n-1, by Bruck et al.
/// (Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems, IEEE TPDS 8(11), 1997)
/// with radix r. Blocks that go the same way travel as one message: quicker where latency counts.
///
/// For every weight w = 1, r, r^2, ... < n and digit z = 1 .. r-1, a rank has at most one peer at distance z * w each
/// way. The r-1 messages of a weight, a hop, are under way together; the next hop begins when they have arrived. With r
/// >= n there is one hop: every block goes straight to its destination.

/// From this number of ranks on, a message to each rank may take longer than a few hops.
inline constexpr std::size_t kManyRanks = 9;

/// What this rank sends in total. The cost of an exchange depends on these numbers.
struct BruckShape {
    std::size_t hops = 0;
    std::size_t messages = 0;
    std::size_t all_to_all_blocks = 0; ///< an all-gather sends n-1
};
BruckShape bruck_shape(std::size_t ranks, std::size_t radix);

/// All-to-all: to[j] goes to rank j, where it arrives at from[r]; r is this rank. to[j].bytes is the same on every
/// rank. A block moves at each hop for which the hop's digit of the block's distance isn't zero. It moves through
/// memory that is appended to `buffers` and must outlive the exchange. A rank's block to itself is ignored.
Status plan_bruck_all_to_all(Transport& transport, int tag, std::size_t radix, std::span<const Part> to,
                             std::span<void* const> from, std::vector<AlignedBuffer<std::byte>>* buffers,
                             std::unique_ptr<Exchange>* exchange);

/// All-gather: the block of rank j lies, or arrives, at all + offsets[j] and ends at offsets[j + 1], the same on every
/// rank. After the hop of weight w a rank has its own block and those of the r*w - 1 ranks after it. Nothing is copied.
Status plan_bruck_all_gather(Transport& transport, int tag, std::size_t radix, void* all,
                             std::span<const std::size_t> offsets, std::unique_ptr<Exchange>* exchange);

} // namespace onebit
