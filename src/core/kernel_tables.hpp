// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace onebit {

/// The table of kernels that has this name; NULL where there is none.
template <typename Table>
const Table* table_named(std::span<const Table* const> tables, std::string_view name) {
    for (const Table* table : tables) {
        if (name == table->name) return table;
    }
    return nullptr;
}

/// The same; if there is none, the last (reference).
template <typename Table>
const Table& table_or_reference(std::span<const Table* const> tables, std::string_view name) {
    const Table* const named = table_named(tables, name);
    return named != nullptr ? *named : *tables.back();
}

} // namespace onebit
