// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace onebit {

/// The values as numbers, in the order in which the values first appear.
template <typename Value>
std::vector<int> number_by_first_rank(const std::vector<Value>& values) {
    std::vector<int> nodes;
    std::vector<Value> seen;
    for (const Value& value : values) {
        const auto known = std::find(seen.begin(), seen.end(), value);
        nodes.push_back(static_cast<int>(known - seen.begin()));
        if (known == seen.end()) seen.push_back(value);
    }
    return nodes;
}

/// The same for all processes on one host, a container counting as a host; another for other hosts, except by chance.
std::uint64_t host_identity();
/// The same for a host that MPI calls `name`.
std::uint64_t host_identity(const char* name);

} // namespace onebit
