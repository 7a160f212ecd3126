// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.hpp"

namespace onebit {

/// The codec with which an allreduce of this config is quickest when it compresses, of those that leave an error of at
/// most `max_error`. Of equally quick ones the finest. Measures what AUTO would measure. `own`: what is already wrong
/// on this rank, if anything. Collective; blocks. Status as for onebit_allreduce_choose_codec.
Status choose_codec(Communicator& communicator, const onebit_allreduce_config_t* caller, double max_error,
                    const Status& own, onebit_codec_t* chosen);

} // namespace onebit
