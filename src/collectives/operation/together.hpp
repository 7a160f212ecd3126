// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/together.hpp"
#include "collectives/operation/collective.hpp"

namespace onebit {

/// As together() of a communicator, but with the agreements of a handle's ranks.
template <typename Body>
Status together(Collective& collective, const Body& body) {
    return take_part(body,
                     [&](const Status& own) { return collective.broken().ok() ? collective.agree_now(own) : own; });
}

} // namespace onebit
