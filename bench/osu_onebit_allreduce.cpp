// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_allreduce_run for a range of message sizes, measured and printed as the OSU micro-benchmarks
// measure and print MPI_Allreduce, so that people and programs can read, plot and parse it as before:
//
//     mpirun -n 4 osu_onebit_allreduce -m 4:64M -f -c
//
// The rival, with --full, is MPI_Allreduce (osu_benchmark.hpp).

#include "osu_allreduce.hpp"

int main(int argc, char** argv) {
    return onebit::bench::run_benchmark(
        argc, argv,
        onebit::bench::AllreduceBenchmark(
            {"osu_onebit_allreduce", "compressed allreduce", "Allreduce", "MPI_Allreduce"}));
}
