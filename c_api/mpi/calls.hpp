// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstring>

#include "transport/mpi_calls.hpp"

namespace onebit {

/// Converts a communicator or request of this MPI to the handle of MpiCalls, and back. In some MPIs these are pointers:
/// sizeof means the pointer's own size.
// NOLINTBEGIN(bugprone-sizeof-expression)
template <typename Mpi>
MpiCalls::Handle to_handle(Mpi value) {
    static_assert(sizeof(Mpi) <= sizeof(MpiCalls::Handle));
    MpiCalls::Handle handle = 0;
    std::memcpy(&handle, &value, sizeof(value));
    return handle;
}
template <typename Mpi>
Mpi from_handle(MpiCalls::Handle handle) {
    Mpi value;
    std::memcpy(&value, &handle, sizeof(value));
    return value;
}
// NOLINTEND(bugprone-sizeof-expression)

/// Between MPI_Init and MPI_Finalize.
bool mpi_is_up();
/// The functions of the MPI that this file is compiled with. MPI must be up.
MpiCalls mpi_calls();

} // namespace onebit
