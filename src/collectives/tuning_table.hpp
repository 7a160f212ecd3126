// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "collectives/costs.hpp"
#include "core/status.hpp"

namespace onebit {

/// What a table is of, besides the host's memory.
inline constexpr onebit_codec_t kTunedCodec = ONEBIT_CODEC_SIGN;

/// Costs that were measured, and on what: a JSON file (README.md, "Tuning").
struct TuningTable {
    std::size_t ranks = 0;
    std::size_t nodes = 0;
    Costs costs = Costs({Costs::Row()});

    /// Why the table says nothing about these ranks; "": it does.
    std::string objection(const NodeGroups& groups) const;
};

/// A table longer than this is none.
inline constexpr std::size_t kLongestTuningTable = std::size_t{1} << 20;

/// BAD_STATE with `name` and what is wrong: not JSON, not such a table, of another version, or impossible numbers.
Status parse_tuning_table(const std::string& text, const std::string& name, TuningTable* table);

std::string print_tuning_table(const TuningTable& table);

} // namespace onebit
