// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/sum_levels.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace onebit {
namespace {

/// The level of the ranks that have the same number in `of_rank` as this one.
SumLevel level_of(const std::vector<int>& of_rank, std::size_t rank, std::size_t before, std::size_t chunks) {
    SumLevel level = {{}, 0, before, chunks};
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
        if (of_rank[r] != of_rank[rank]) continue;
        if (r == rank) level.own = level.ranks.size();
        level.ranks.push_back(static_cast<int>(r));
    }
    return level;
}

} // namespace

std::vector<SumLevel> one_sum_level(std::size_t ranks, std::size_t rank) {
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    return {{std::move(all), rank, 0, 1}};
}

std::vector<SumLevel> sum_levels(const NodeGroups& nodes, std::size_t rank) {
    if (nodes.objection() != nullptr) return one_sum_level(nodes.node_of_rank.size(), rank);
    SumLevel node = level_of(nodes.node_of_rank, rank, 0, nodes.nodes);
    SumLevel between = level_of(nodes.place_of_rank, rank, node.own_begin(), 1);
    return {std::move(node), std::move(between)};
}

} // namespace onebit
