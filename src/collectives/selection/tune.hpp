// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <span>
#include <string>

#include "collectives/communicator/communicator.hpp"

namespace onebit {

/// What onebit_comm_tune_codecs' caller asks for.
struct TuningOrder {
    std::span<const onebit_codec_t> codecs;
    std::uint64_t max_count = 0;
    double seconds = 0;
    std::string path; ///< rank 0's; "": none
};

/// Measures calls of every form in turn, codec after codec, from few elements to many. Takes the times as the
/// communicator's costs and writes them down. A time is the median of the calls' on the slowest rank; it is the same on
/// every rank. `own`: what is wrong on this rank, if anything. Collective; blocks. Status as for
/// onebit_comm_tune_codecs.
Status tune(Communicator& communicator, const TuningOrder& order, const Status& own);

inline constexpr double kStartSeconds = 0.1;

/// The same in short, at a few sizes, for a communicator that was not tuned, with `handle`'s count, memory and stream.
/// The communicator takes the times as its costs. If measuring fails and it is still usable, it keeps its estimate. Up
/// to 4 MiB; for larger handles up to 64 MiB, since values that fit into the caches say little about larger ones.
/// Collective; blocks.
Status measure_at_start(Communicator& communicator, const onebit_allreduce_config_t& handle);

} // namespace onebit
