// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace onebit {

/// Which ranks share a node, as the two-level form needs them.
struct NodeGroups {
    std::vector<int> node_of_rank;
    std::vector<int> place_of_rank; ///< which of its node's ranks it is
    std::size_t nodes = 0;
    std::size_t places = 0; ///< ranks of each node; 0 where nodes have different numbers of ranks

    static constexpr std::size_t kMostPlaces = 1024; ///< where ranks share memory

    static NodeGroups of(const std::vector<int>& node_of_rank);
    /// Why two levels would make no sense or are impossible; NULL: they make sense and are possible.
    const char* objection() const;
};

} // namespace onebit
