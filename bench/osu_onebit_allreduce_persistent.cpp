// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_allreduce_start and onebit_allreduce_wait, as OMB's osu_allreduce_persistent measures MPI_Start and
// MPI_Wait. (osu_onebit_allreduce measures onebit_allreduce_run. Its handles are planned once for all of their calls,
// too.)
//
//     mpirun -n 4 osu_onebit_allreduce_persistent -m 4:64M -f -c
//
// The rival, with --full, is MPI_Allreduce: not every MPI has persistent collectives.

#include "osu_allreduce.hpp"

int main(int argc, char** argv) {
    using namespace onebit::bench;
    return run_benchmark(
        argc, argv,
        AllreduceBenchmark({"osu_onebit_allreduce_persistent", "compressed allreduce (start, then wait)",
                            "Allreduce Persistent", "MPI_Allreduce", false, Completion::kStarted}));
}
