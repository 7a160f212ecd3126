// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are MPI processes meet, with memory that runs out at every place of onebit's own. MPI's doesn't.
#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include "faults/allocation_sweep.hpp"

namespace onebit_test {

TEST_CASE("communicators over MPI are made with memory, or on no rank", "[memory][mpi]") {
    run_sweep({.name = "create over MPI",
               .make =
                   [](onebit_comm_t, RankLog& log) {
                       return std::make_unique<Creation<onebit_comm_t>>(
                           log, [](onebit_comm_t* comm) { return onebit_comm_create_mpi(MPI_COMM_WORLD, comm); },
                           onebit_comm_destroy);
                   },
               .on_communicator = false});
}

} // namespace onebit_test
