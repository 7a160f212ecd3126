// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/node_groups.hpp"

#include <algorithm>

namespace onebit {

NodeGroups NodeGroups::of(const std::vector<int>& node_of_rank) {
    NodeGroups groups;
    groups.node_of_rank = node_of_rank;
    groups.nodes = static_cast<std::size_t>(*std::max_element(node_of_rank.begin(), node_of_rank.end())) + 1;
    std::vector<int> ranks_of_node(groups.nodes, 0);
    for (const int node : node_of_rank) groups.place_of_rank.push_back(ranks_of_node[static_cast<std::size_t>(node)]++);
    const auto [fewest, most] = std::minmax_element(ranks_of_node.begin(), ranks_of_node.end());
    groups.places = *fewest == *most ? static_cast<std::size_t>(*most) : 0;
    return groups;
}

const char* NodeGroups::objection() const {
    if (nodes == 1) return "all ranks are on one node";
    if (places == 1) return "each node has one rank";
    if (places == 0) return "the nodes have different numbers of ranks";
    if (places > kMostPlaces) return "a node has more than 1024 ranks";
    return nullptr;
}

} // namespace onebit
