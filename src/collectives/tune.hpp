// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "collectives/communicator.hpp"

namespace onebit {

/// What onebit_comm_tune's caller asks for.
struct TuningOrder {
    std::uint64_t max_count = 0;
    double seconds = 0;
    std::string path; ///< rank 0's; "": none
};

/// Measures a call of every form, from few elements to many, in turn, takes the times for the communicator's costs and
/// writes them down. A time is the median of the calls' on the slowest rank; it is the same on every rank. Collective;
/// blocks. Status as for onebit_comm_tune.
Status tune(Communicator& communicator, const TuningOrder& order);

} // namespace onebit
