// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The same as osu_onebit_allreduce, of calls that are started and waited for: onebit_allreduce_start and _wait, as OMB's
// osu_allreduce_persistent has MPI_Start and MPI_Wait. A handle of onebit's is planned once in either.
//
//     mpirun -n 4 osu_onebit_allreduce_persistent -m 4:64M -f -c
//
// The rival, with --full, is MPI_Allreduce: not every MPI has persistent collectives.

#include "osu_allreduce.hpp"

int main(int argc, char** argv) {
    using namespace onebit::bench;
    return run_benchmark(argc, argv,
                         AllreduceBenchmark({"osu_onebit_allreduce_persistent", "allreduce, started and waited for",
                                             "Persistent Allreduce", "MPI_Allreduce", false, Completion::kStarted}));
}
