// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// All-gather along a ring: blocks[j] is rank j's, where it lies or arrives, of the same size on every rank; `peer` is
/// not looked at. In n-1 hops every rank sends to the next one what came from the one before, its own first [Thakur,
/// Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1), 2005, section 4.1].
/// As many bytes from each rank as by direct messages, but every link between switches carries each block once, however
/// many ranks are behind it. A hop of n-1 waits for the one before.
Status plan_ring_all_gather(Transport& transport, int tag, std::span<const Part> blocks,
                            std::unique_ptr<Exchange>* exchange);

} // namespace onebit
