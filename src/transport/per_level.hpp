// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace onebit {

/// `base`, for programs whose values lie in a GPU's memory and all of whose work is in `stream`; and with another
/// transport inside each node, which split_nodes() gives channels of. All else is the base's: messages, sums,
/// duplicates, which know nothing of the other.
///   node_of_rank  the nodes, which node_identity() tells apart from now on
///   node          between this rank's node's ranks, in the same order; NULL: the base there, too
std::unique_ptr<Transport> make_per_level_transport(std::unique_ptr<Transport> base, std::vector<int> node_of_rank,
                                                    std::unique_ptr<Transport> node, void* stream);

} // namespace onebit
