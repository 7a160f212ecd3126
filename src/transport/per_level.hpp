// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace onebit {

/// `base`, with another transport inside each node, for programs whose values lie in a GPU's memory and whose work is
/// all in `stream`. split_nodes() gives channels of the other transport. Messages, sums, duplicates and all else are
/// the base's, and know nothing of the other transport.
///   node_of_rank  the nodes, which node_identity() tells apart from now on
///   node          between the ranks of this rank's node, in the same order; NULL: the base inside nodes, too
std::unique_ptr<Transport> make_per_level_transport(std::unique_ptr<Transport> base, std::vector<int> node_of_rank,
                                                    std::unique_ptr<Transport> node, void* stream);

} // namespace onebit
