// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.hpp"

namespace onebit {

/// Transport::share_memory by messages alone. Every rank makes its own part, without a name, and maps the other ranks'
/// parts. All ranks of the channel get the same result: OUT_OF_MEMORY or UNSUPPORTED where one rank can't, TIMEOUT,
/// TRANSPORT. plan_node_memory() has made `*memory` of the channel, and planned the messages.
Status share_node_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory);
/// Local.
Status plan_node_memory(Transport& channel, std::unique_ptr<SharedMemory>* memory);

} // namespace onebit
