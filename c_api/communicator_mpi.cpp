// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <onebit/onebit_mpi.h>
#include <pthread.h>

#include "c_api/guard.hpp"
#include "transport/mpi.hpp"

namespace {

/// Whether MPI is that of a process which this one was forked from: it would wait for messages that never come.
bool mpi_is_parents = false;

[[gnu::constructor]] void look_at_forks() {
    pthread_atfork(nullptr, nullptr, [] {
        int initialised = 0;
        MPI_Initialized(&initialised);
        mpi_is_parents = mpi_is_parents || initialised != 0;
    });
}

} // namespace

onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        onebit::Output<onebit::Communicator, onebit_comm_t> output(comm, "comm");
        if (mpi_is_parents) {
            return onebit::Status::error(ONEBIT_ERROR_TRANSPORT,
                                         "MPI was initialised before the fork that this process comes from: it is the "
                                         "parent's alone");
        }
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(onebit::make_mpi_transport(mpi_comm, onebit::timeout_of_environment(), &transport));
        std::unique_ptr<onebit::Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), output.status(), &communicator));
        output.put(std::move(communicator));
        return onebit::Status();
    });
}

onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) noexcept {
    int initialised = 0;
    MPI_Initialized(&initialised); // else there is nothing to be converted
    return onebit_comm_create_mpi(initialised != 0 ? MPI_Comm_f2c(mpi_comm) : MPI_COMM_NULL, comm);
}
