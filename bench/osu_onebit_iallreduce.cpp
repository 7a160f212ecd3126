// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How much of an allreduce overlaps with computing, as OMB's osu_iallreduce measures it for MPI_Iallreduce: first calls
// alone, then computing for as long as one call takes, with a call in flight that is tested now and then.
//
//     mpirun -n 4 osu_onebit_iallreduce -m 4:64M -f -c
//
// Overall is the time of both together, Compute of computing alone, Pure Comm. of the call alone. Overlap is
// 100 (1 - (Overall - Compute) / Pure Comm.), at least 0. The rival, with --full, is MPI_Iallreduce with as many
// MPI_Test.

#include "osu_allreduce.hpp"

int main(int argc, char** argv) {
    using namespace onebit::bench;
    return run_benchmark(
        argc, argv,
        AllreduceBenchmark({"osu_onebit_iallreduce", "compressed allreduce with computing beside it",
                            "Non-blocking Allreduce", "MPI_Iallreduce", false, Completion::kOverlapped}));
}
