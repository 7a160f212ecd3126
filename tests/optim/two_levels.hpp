// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The common part of the tests of optimizers on two levels. ONEBIT_NODE_SIZE makes nodes of one machine's ranks.
#pragma once

#include <string>
#include <vector>

#include "optim/buckets.hpp"
#include "support/environment.hpp"
#include "support/sanitized.hpp"
#include "support/training.hpp"

namespace onebit_test {

struct Nodes {
    int nodes, places;
    int ranks() const { return nodes * places; }
    std::string name() const { return std::to_string(nodes) + " nodes of " + std::to_string(places); }
};

constexpr Nodes two_by_two{2, 2};

inline const std::vector<Nodes>& all_nodes() {
    static const std::vector<Nodes> all = {two_by_two, {2, 3}, {3, 2}, {4, 2}};
    static const std::vector<Nodes> few = {two_by_two}; // a sanitizer takes ten times as long
    return is_sanitized() ? few : all;
}

// Runs a body on ranks in these nodes. Does nothing if so many ranks aren't possible.
inline void run_nodes(const Nodes& nodes, const Body& body) {
    if (!can_have_ranks(nodes.ranks())) return;
    const Variable node_size("ONEBIT_NODE_SIZE", std::to_string(nodes.places).c_str());
    run_ranks(nodes.ranks(), body);
}

inline Setup on_two_levels(Setup setup, const Nodes& nodes = two_by_two) {
    setup.config.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL;
    setup.places = nodes.places;
    return setup;
}

// Two groups, the second of which is never compressed; `dense` has the numbers of its tensors.
inline void leave_out(Setup& setup, const std::vector<std::size_t>& dense) {
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[0].beta2 = setup.config.beta2;
    setup.groups[0].weight_decay = setup.config.weight_decay;
    setup.groups[1].no_compress = 1;
    setup.group_of.assign(setup.sizes.size(), 0);
    for (const std::size_t k : dense) setup.group_of[k] = 1;
}

inline bool all_zero(const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

inline bool has_exchanged(const onebit_optimizer_info_t& before, const onebit_optimizer_info_t& after) {
    return after.exact_rounds + after.compressed_rounds > before.exact_rounds + before.compressed_rounds;
}

} // namespace onebit_test
