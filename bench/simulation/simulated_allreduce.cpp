// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// One allreduce by the library's own collectives and transport on a simulated cluster (SimGrid's SMPI): how long a call
// takes there, in simulated time. scripts/simulate.py builds the cluster and runs this program.
//
//     simulated_allreduce ALGORITHM ELEMENTS CALLS CHECK ENCODE NODE AVERAGE AVERAGE_MESSAGE DECODE ADD POLL
//
// ALGORITHM: auto, dense, flat, pipelined, two_level, bruck, ring; levels:RANKS, groups of so many ranks, by 8 bits;
// levels:FEWER,RANKS, exact ones below them; or mpi: MPI_Allreduce itself. CHECK and those after
// it: nanoseconds (simulated_codec.hpp; ADD: MPI_Allreduce's sum, per element); a CHECK of 0: ONEBIT_CHECK_NONE.

#include <mpi.h>
#include <onebit/onebit.h>
#include <onebit/onebit_mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/config.hpp"
#include "simulated_codec.hpp"

namespace {

void require(onebit_status_t status, const char* call) {
    if (status == ONEBIT_SUCCESS) return;
    std::fprintf(stderr, "simulated_allreduce: %s: %s\n", call, onebit_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

onebit_algorithm_t algorithm_of(const std::string& name) {
    for (int a = ONEBIT_ALGORITHM_AUTO; a <= ONEBIT_ALGORITHM_RING; ++a) {
        if (name == onebit::algorithm_name(static_cast<onebit_algorithm_t>(a)))
            return static_cast<onebit_algorithm_t>(a);
    }
    std::fprintf(stderr, "simulated_allreduce: %s is not an algorithm\n", name.c_str());
    std::abort();
}

constexpr std::string_view kLevels = "levels:";

/// A rank's levels, from the algorithm's name.
std::vector<onebit_level_t> levels_of(std::string_view name, int rank) {
    std::vector<onebit_level_t> levels;
    if (!name.starts_with(kLevels)) return levels;
    std::istringstream numbers(std::string(name.substr(kLevels.size())));
    for (std::string number; std::getline(numbers, number, ',');) {
        const onebit_level_t level = ONEBIT_LEVEL_INIT(rank / std::atoi(number.c_str()));
        levels.push_back(level);
    }
    if (levels.empty()) std::abort(); // no numbers
    levels.back().compressed = 1;
    levels.back().codec = ONEBIT_CODEC_INT8;
    return levels;
}

double add_nanoseconds = 0;

/// MPI_Allreduce's sum, which takes its time but touches no value.
void add(void*, void*, int* count, MPI_Datatype*) {
    smpi_execute(*count * add_nanoseconds * 1e-9);
}

/// The slowest rank's seconds of a call, the median over the calls.
template <class Call>
double measure(int calls, const Call& call) {
    std::vector<double> seconds;
    for (int i = 0; i < calls; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        call();
        double own = MPI_Wtime() - begin;
        double slowest = 0;
        MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        seconds.push_back(slowest);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 12) {
        std::fprintf(stderr, "simulated_allreduce: see the head of its source\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const std::string algorithm = argv[1];
    const std::size_t count = std::strtoull(argv[2], nullptr, 10);
    const int calls = std::atoi(argv[3]);
    const auto rate = [&](int i) { return std::atof(argv[4 + i]); };
    onebit::simulation::rates() = {rate(0), rate(1), algorithm == "two_level" ? rate(2) : 0, rate(3), rate(4),
                                   rate(5), rate(7)};

    add_nanoseconds = rate(6);

    // Simulated ranks live in one process: one buffer each way is enough for all ranks, as no value is looked at.
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    onebit::AlignedBuffer<float> memory[2];
    float* buffers[2] = {};
    for (int i = 0; i < 2; ++i) {
        if (rank == 0) memory[i] = onebit::AlignedBuffer<float>(count);
        buffers[i] = memory[i].data();
    }
    MPI_Bcast(buffers, sizeof(buffers), MPI_BYTE, 0, MPI_COMM_WORLD);
    const auto [input, output] = buffers;

    double seconds = 0;
    std::string chosen = algorithm;
    if (algorithm == "mpi") {
        MPI_Op sum = MPI_OP_NULL;
        MPI_Op_create(add, 1, &sum);
        seconds = measure(
            calls, [&] { MPI_Allreduce(input, output, static_cast<int>(count), MPI_FLOAT, sum, MPI_COMM_WORLD); });
        MPI_Op_free(&sum);
    } else {
        onebit_comm_t comm = nullptr;
        require(onebit_comm_create_mpi(MPI_COMM_WORLD, &comm), "onebit_comm_create_mpi");
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
        const std::vector<onebit_level_t> levels = levels_of(algorithm, rank);
        config.algorithm = levels.empty() ? algorithm_of(algorithm) : ONEBIT_ALGORITHM_LEVELS;
        config.levels = levels.empty() ? nullptr : levels.data();
        config.num_levels = static_cast<std::uint32_t>(levels.size());
        config.check = rate(0) > 0 ? ONEBIT_CHECK_FULL : ONEBIT_CHECK_NONE;
        onebit_allreduce_t allreduce = nullptr;
        require(onebit_allreduce_create(comm, &config, &allreduce), "onebit_allreduce_create");
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        require(onebit_allreduce_get_info(allreduce, &info), "onebit_allreduce_get_info");
        chosen = onebit::algorithm_name(info.algorithm);
        seconds =
            measure(calls, [&] { require(onebit_allreduce_run(allreduce, input, output), "onebit_allreduce_run"); });
        require(onebit_allreduce_destroy(allreduce), "onebit_allreduce_destroy");
        require(onebit_comm_destroy(comm), "onebit_comm_destroy");
    }
    if (rank == 0) std::printf("{\"algorithm\": \"%s\", \"microseconds\": %.3f}\n", chosen.c_str(), seconds * 1e6);
    MPI_Finalize();
    return 0;
}
