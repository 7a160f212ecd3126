// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <onebit/onebit_mpi.h>

#include "c_api/guard.hpp"
#include "transport/mpi.hpp"

onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        const onebit::Status output = onebit::prepare_output(comm, "comm");
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(onebit::make_mpi_transport(mpi_comm, onebit::timeout_of_environment(), &transport));
        std::unique_ptr<onebit::Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), output, &communicator));
        onebit::put_output(std::move(communicator), comm);
        return onebit::Status();
    });
}

onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) noexcept {
    int initialised = 0;
    MPI_Initialized(&initialised); // else there is nothing to be converted
    return onebit_comm_create_mpi(initialised != 0 ? MPI_Comm_f2c(mpi_comm) : MPI_COMM_NULL, comm);
}
