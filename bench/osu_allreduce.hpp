// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The allreduce as a collective to be measured: what osu_onebit_allreduce, osu_onebit_allreduce_persistent and
// osu_onebit_iallreduce share.
//
// With --accelerator cuda, OMB's option, values lie in GPUs' memory, and a call ends when its stream has come to its
// end. The dense MPI_Allreduce uses the same memory if the MPI can reach it. Otherwise it uses the host's memory, and
// all values are copied before and after it, as in a program without onebit. The "Ranks:" line says which.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <memory>
#include <string>

#include "osu_benchmark.hpp"

namespace onebit::bench {

class AllreduceBenchmark : public OsuBenchmark {
  public:
    using OsuBenchmark::OsuBenchmark;
    std::string missing(const OsuOptions& options) const override;
    std::unique_ptr<Collective> prepare(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options,
                                        std::size_t largest) const override;
};

} // namespace onebit::bench
