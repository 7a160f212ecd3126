// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/communicator.hpp"

namespace onebit {

/// The codec whose compressed allreduce of this config is quickest. Only codecs with an error of at most `max_error`
/// are considered. Of equally quick ones the finest is taken. Measures what AUTO would measure. `own`: what is wrong
/// on this rank, if anything. Collective; blocks. Status as for onebit_allreduce_choose_codec.
Status choose_codec(Communicator& communicator, const onebit_allreduce_config_t* caller, double max_error,
                    const Status& own, onebit_codec_t* chosen);

} // namespace onebit
