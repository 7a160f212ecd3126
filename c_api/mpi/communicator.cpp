// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The library of one MPI: libonebit_openmpi, libonebit_mpich. It passes this MPI's functions to libonebit. libonebit
// contains everything else.
#include <onebit/onebit_mpi.h>
#include <pthread.h>

#include "c_api/communicator_mpi.hpp"
#include "c_api/mpi/calls.hpp"

namespace {

/// Whether MPI belongs to a process that this one was forked from: MPI would wait for messages that never come.
bool mpi_is_parents = false;

bool is_initialised() {
    int initialised = 0;
    MPI_Initialized(&initialised);
    return initialised != 0;
}

[[gnu::constructor]] void look_at_forks() {
    pthread_atfork(nullptr, nullptr, [] { mpi_is_parents = mpi_is_parents || is_initialised(); });
}

} // namespace

onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) noexcept {
    const bool is_usable = onebit::mpi_is_up() && !mpi_is_parents;
    const onebit::MpiCalls calls = is_usable ? onebit::mpi_calls() : onebit::MpiCalls();
    return onebit_comm_create_mpi_calls(&calls, mpi_is_parents, onebit::to_handle(mpi_comm), comm);
}

onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) noexcept {
    // Before MPI is initialised there is nothing to convert.
    return onebit_comm_create_mpi(is_initialised() ? MPI_Comm_f2c(mpi_comm) : MPI_COMM_NULL, comm);
}
