// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "c_api/communicator_mpi.hpp"

#include "c_api/guard.hpp"
#include "collectives/communicator/communicator.hpp"
#include "transport/mpi.hpp"

using onebit::Status;

namespace {

Status check(const onebit::MpiCalls& calls, bool is_parents) {
    if (is_parents) {
        return Status::error(ONEBIT_ERROR_TRANSPORT,
                             "MPI was initialised before the fork that this process comes from: it is the parent's "
                             "alone");
    }
    if (calls.size != sizeof(onebit::MpiCalls)) {
        return Status::error(ONEBIT_ERROR_MISMATCH, "libonebit and its library of an MPI are of different versions");
    }
    if (calls.at_finalize != nullptr) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "mpi_comm: MPI is not initialised, or already finalised");
}

} // namespace

onebit_status_t onebit_comm_create_mpi_calls(const onebit::MpiCalls* calls, bool is_parents,
                                             onebit::MpiCalls::Handle mpi_comm, onebit_comm_t* comm) noexcept {
    return onebit::guard([&] {
        onebit::Output<onebit::Communicator, onebit_comm_t> output(comm, "comm");
        ONEBIT_RETURN_IF_ERROR(check(*calls, is_parents));
        std::unique_ptr<onebit::Transport> transport;
        ONEBIT_RETURN_IF_ERROR(
            onebit::make_mpi_transport(*calls, mpi_comm, onebit::timeout_of_environment(), &transport));
        std::unique_ptr<onebit::Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(onebit::Communicator::create(std::move(transport), output.status(), &communicator));
        output.put(std::move(communicator));
        return Status();
    });
}
