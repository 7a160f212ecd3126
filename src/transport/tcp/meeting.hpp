// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace onebit {

/// Ranks that know nothing of each other tell each other, by four gatherings, where they are and that they have the
/// memory. Then they connect. If one rank lacks memory, all ranks get OUT_OF_MEMORY. With more than 1024 ranks the
/// first gathering itself is an exception: it needs memory, 16 bytes for each rank.
///   own    what is already wrong on this rank: all ranks hear of it
///   peers  [out] by rank
Status meet_peers(const Bootstrap& bootstrap, const Status& own, std::vector<TcpLink::Peer>* peers);

} // namespace onebit
