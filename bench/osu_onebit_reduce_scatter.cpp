// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_reduce_scatter_run for a range of message sizes, measured and printed as the OSU micro-benchmarks
// measure and print MPI_Reduce_scatter:
//
//     mpirun -n 4 osu_onebit_reduce_scatter -m 16:64M -f -c
//
// A size is that of the whole buffer, which each rank sends; each rank gets a shard of it. The rival, with --full, is
// MPI_Reduce_scatter_block (osu_benchmark.hpp).

#include "osu_shards.hpp"

namespace {

struct ReduceScatter {
    static constexpr onebit::bench::OsuProgram kProgram = {"osu_onebit_reduce_scatter", "compressed reduce-scatter",
                                                           "Reduce_scatter", "MPI_Reduce_scatter_block", true};
    static constexpr const char* kName = "onebit_reduce_scatter";
    using Handle = onebit_reduce_scatter_t;
    static constexpr auto kCreate = onebit_reduce_scatter_create;
    static constexpr auto kRun = onebit_reduce_scatter_run;
    static constexpr auto kReset = onebit_reduce_scatter_reset;
    static constexpr auto kGetError = onebit_reduce_scatter_get_error;
    static constexpr auto kGetInfo = onebit_reduce_scatter_get_info;
    static constexpr auto kDestroy = onebit_reduce_scatter_destroy;

    static void rival(const float* send, float* receive, int shard, MPI_Comm comm) {
        MPI_Reduce_scatter_block(send, receive, shard, MPI_FLOAT, MPI_SUM, comm);
    }

    static onebit::bench::Shape shape(const onebit::bench::Ranks& ranks, std::size_t count, onebit::bench::Part shard) {
        return {count, {0, count}, shard, ranks.size, true};
    }
};

} // namespace

int main(int argc, char** argv) {
    return onebit::bench::run_benchmark(argc, argv, onebit::bench::ShardBenchmark<ReduceScatter>());
}
