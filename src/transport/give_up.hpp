// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.hpp"

namespace onebit {

/// Gives a channel up for `why`, and waits a moment for the others, who give it up likewise. Returns `why`; where a
/// time-out or an abort ended the waiting, with the ranks that have said nothing, for those are the ones that did not
/// answer.
Status give_up_on(Transport& channel, const Status& why);

} // namespace onebit
