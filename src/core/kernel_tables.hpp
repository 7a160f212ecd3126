// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace onebit {

/// The table of kernels that has this name; NULL where there is none.
template <typename Table>
const Table* table_named(std::span<const Table* const> tables, const std::string& name) {
    for (const Table* table : tables) {
        if (name == table->name) return table;
    }
    return nullptr;
}

} // namespace onebit
