// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// All-gather along a ring: blocks[j] is where rank j's block lies or arrives, of the same size on every rank; `peer`
/// is ignored. In n-1 hops every rank sends to the next rank what came from the rank before, its own block first
/// [Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1), 2005,
/// section 4.1]. Each rank sends as many bytes as by direct messages, but every link between switches carries each
/// block once, however many ranks are behind the link. Each of the n-1 hops waits for the one before.
Status plan_ring_all_gather(Transport& transport, int tag, std::span<const Part> blocks,
                            std::unique_ptr<Exchange>* exchange);

} // namespace onebit
