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
/// with radix r. Blocks that go the same way travel as one message: quicker where latency is what counts.
///
/// A rank is z * w away, for every weight w = 1, r, r^2, ... < n and digit z = 1 .. r-1, from at most one peer each
/// way. The r-1 messages of a weight, a hop, are under way together; the next hop begins when they have come. With r >=
/// n there is one hop: every block goes straight to where it belongs.

/// From so many ranks on, a message to each of them may take longer than a few hops.
inline constexpr std::size_t kManyRanks = 9;

/// What this rank has to send in all: the sizes that the cost of an exchange depends on.
struct BruckShape {
    std::size_t hops = 0;
    std::size_t messages = 0;
    std::size_t all_to_all_blocks = 0; ///< an all-gather sends n-1
};
BruckShape bruck_shape(std::size_t ranks, std::size_t radix);

/// All-to-all: to[j] goes to rank j, where it arrives at from[r], r being this rank. Every rank sends rank j as many
/// bytes as to[j].bytes says here. A block moves on at each hop whose weight's digit of the distance it has to go isn't
/// zero, through memory that is appended to `buffers` and must outlive the exchange. Own blocks are not looked at.
Status plan_bruck_all_to_all(Transport& transport, int tag, std::size_t radix, std::span<const Part> to,
                             std::span<void* const> from, std::vector<AlignedBuffer<std::byte>>* buffers,
                             std::unique_ptr<Exchange>* exchange);

/// All-gather: the block of rank j lies, or arrives, at all + offsets[j] and ends at offsets[j + 1], the same on every
/// rank. After the hop of weight w a rank has its own block and those of the r*w - 1 ranks after it. Nothing is copied.
Status plan_bruck_all_gather(Transport& transport, int tag, std::size_t radix, void* all,
                             std::span<const std::size_t> offsets, std::unique_ptr<Exchange>* exchange);

} // namespace onebit
