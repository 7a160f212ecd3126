// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "collectives/communicator/costs.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "core/config.hpp"
#include "core/status.hpp"

namespace onebit {

/// Costs that were measured with values in the host's memory, and on which ranks: a JSON file (README.md, "Tuning").
struct TuningTable {
    std::size_t ranks = 0;
    std::size_t nodes = 0;
    std::array<std::optional<Costs>, kCodecs> costs; ///< by codec

    /// Why the table says nothing about these ranks; "": it does.
    std::string objection(const NodeGroups& groups) const;
};

/// A longer file is no tuning table.
inline constexpr std::size_t kLongestTuningTable = std::size_t{1} << 20;

/// BAD_STATE with `name` and what is wrong: not JSON, not such a table, of another version, or impossible numbers.
Status parse_tuning_table(const std::string& text, const std::string& name, TuningTable* table);

std::string print_tuning_table(const TuningTable& table);

} // namespace onebit
