// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.hpp"

namespace onebit {

/// Gives a channel up for `why`, and waits a moment for the other ranks, which give it up, too. Returns `why`. If a
/// time-out or an abort ended the waiting, adds the ranks that have told nothing, because those did not answer.
Status give_up_on(Transport& channel, const Status& why);

} // namespace onebit
