// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.hpp"

namespace onebit {

/// Transport::share_memory by messages alone: every rank makes its own part, without a name, and maps those of the
/// others. All ranks of the channel come to one end: OUT_OF_MEMORY or UNSUPPORTED, where one can't, TIMEOUT, TRANSPORT.
/// `*memory` is what plan_node_memory() has made of the channel, the messages planned.
Status share_node_memory(std::size_t bytes, const Patience& patience, std::unique_ptr<SharedMemory>* memory);
/// Local.
Status plan_node_memory(Transport& channel, std::unique_ptr<SharedMemory>* memory);

} // namespace onebit
