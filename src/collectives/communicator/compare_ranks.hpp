// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator/communicator.hpp"
#include "core/status.hpp"

namespace onebit {

/// Something that must be the same on every rank, with the name that a message calls it by.
struct NamedValue {
    const char* name;
    std::uint64_t value;
    bool is_double = false; ///< the bits of a double

    static NamedValue of_double(const char* name, double value);
};

/// MISMATCH unless all ranks come with the same values; it names the first value that differs and which rank has which
/// value. Another rank's error where `own` isn't a success everywhere. Collective; blocks. The number of values is the
/// same on all.
Status compare_across_ranks(Communicator& communicator, const Status& own, std::span<const NamedValue> values);

} // namespace onebit
