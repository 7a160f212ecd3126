// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/communicator/node_groups.hpp"

namespace onebit {

/// A level of an exact sum: a reduce-scatter among some ranks on the way up, an all-gather among them on the way down.
/// The values are cut into as many chunks as there are ranks in all. The ranks of a level have some consecutive chunks;
/// afterwards each rank has the sums of equally many of them.
struct SumLevel {
    std::vector<int> ranks; ///< in the order in which their values are added up
    std::size_t own;        ///< which of them this rank is
    std::size_t before;     ///< chunks before those that these ranks have
    std::size_t chunks;     ///< of each rank afterwards

    std::size_t members() const { return ranks.size(); }
    std::size_t begin_of(std::size_t member) const { return before + member * chunks; }
    std::size_t own_begin() const { return begin_of(own); }
    /// A member's number among those that are not this rank.
    std::size_t among_others(std::size_t member) const { return member - (member > own ? 1 : 0); }
};

/// One level of all ranks.
std::vector<SumLevel> one_sum_level(std::size_t ranks, std::size_t rank);
/// Where all nodes have equally many ranks, and several: one level within each node, one between nodes. A node then
/// sends one sum of each value, and not one value of each of its ranks. Otherwise: one level of all ranks.
std::vector<SumLevel> sum_levels(const NodeGroups& nodes, std::size_t rank);

} // namespace onebit
