// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A program's own messages go on while its ranks wait in shared memory.
#include <mpi.h>

#include "support/exact_averages.hpp"

using namespace onebit_test;

// As with MPI_Allreduce: only the wait for the average advances the message.
TEST_CASE("a rank that waits in shared memory moves its messages on", "[shared][progress]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = std::uint64_t{1} << 17;
        onebit_allreduce_config_t config = dense_config(count);
        config.check = ONEBIT_CHECK_NONE;
        Allreduce reduce(comm, config, log);
        const std::vector<float> input = input_of(count, log.rank(), 0);
        std::vector<char> message(std::size_t{1} << 24, static_cast<char>(log.rank())); // no MPI keeps it for later
        MPI_Request request = MPI_REQUEST_NULL;
        const int bytes = static_cast<int>(message.size());
        if (log.rank() == 0) MPI_Irecv(message.data(), bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
        if (log.rank() == 1) MPI_Send(message.data(), bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        ONEBIT_EXPECT(log, same_bits(reduce.run(input), average(count, log.size(), 0)));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (log.rank() == 0) ONEBIT_EXPECT(log, message.front() == 1 && message.back() == 1);
    });
}
