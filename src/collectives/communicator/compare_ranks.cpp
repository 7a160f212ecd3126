// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/compare_ranks.hpp"

#include <array>
#include <bit>
#include <cstdio>
#include <vector>

namespace onebit {
namespace {

/// No std::string: other ranks have returned by then, so nothing here may need memory.
std::array<char, 32> text_of(std::uint64_t value, bool is_double) {
    std::array<char, 32> text{};
    if (is_double) {
        std::snprintf(text.data(), text.size(), "%g", std::bit_cast<double>(value));
    } else {
        std::snprintf(text.data(), text.size(), "%llu", static_cast<unsigned long long>(value));
    }
    return text;
}

} // namespace

NamedValue NamedValue::of_double(const char* name, double value) {
    return {name, std::bit_cast<std::uint64_t>(value), true};
}

Status compare_across_ranks(Communicator& communicator, const Status& own, std::span<const NamedValue> values) {
    const std::size_t n = values.size();
    std::vector<std::uint64_t> mine;
    for (const NamedValue& value : values) mine.push_back(value.value);
    std::vector<std::uint64_t> all(n * static_cast<std::size_t>(communicator.size()));
    ONEBIT_RETURN_IF_ERROR(communicator.agree_and_gather(own, mine.data(), n * sizeof(std::uint64_t), all.data()));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t r = 1; r * n < all.size(); ++r) {
            if (all[r * n + i] == all[i]) continue;
            return Status::error(ONEBIT_ERROR_MISMATCH, "%s differs: rank 0 has %s, rank %zu has %s", values[i].name,
                                 text_of(all[i], values[i].is_double).data(), r,
                                 text_of(all[r * n + i], values[i].is_double).data());
        }
    }
    return {};
}

} // namespace onebit
