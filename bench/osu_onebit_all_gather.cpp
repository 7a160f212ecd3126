// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_all_gather_run for a range of message sizes, measured and printed as the OSU micro-benchmarks
// measure and print MPI_Allgather:
//
//     mpirun -n 4 osu_onebit_all_gather -m 16:64M -f -c
//
// A size is that of the whole buffer, which each rank gets; each rank sends a shard of it. (In OMB's osu_allgather a
// size is that of the shard.) The rival, with --full, is MPI_Allgather (osu_benchmark.hpp).

#include "osu_shards.hpp"

namespace {

struct AllGather {
    static constexpr onebit::bench::OsuProgram kProgram = {"osu_onebit_all_gather", "compressed all-gather",
                                                           "Allgather", "MPI_Allgather", true};
    static constexpr const char* kName = "onebit_all_gather";
    using Handle = onebit_all_gather_t;
    static constexpr auto kCreate = onebit_all_gather_create;
    static constexpr auto kRun = onebit_all_gather_run;
    static constexpr auto kReset = onebit_all_gather_reset;
    static constexpr auto kGetError = onebit_all_gather_get_error;
    static constexpr auto kGetInfo = onebit_all_gather_get_info;
    static constexpr auto kDestroy = onebit_all_gather_destroy;

    static void rival(const float* send, float* receive, int shard, MPI_Comm comm) {
        MPI_Allgather(send, shard, MPI_FLOAT, receive, shard, MPI_FLOAT, comm);
    }

    static onebit::bench::Shape shape(const onebit::bench::Ranks&, std::size_t count, onebit::bench::Part shard) {
        return {count, shard, {0, count}, 1, true};
    }
};

} // namespace

int main(int argc, char** argv) {
    return onebit::bench::run_benchmark(argc, argv, onebit::bench::ShardBenchmark<AllGather>());
}
