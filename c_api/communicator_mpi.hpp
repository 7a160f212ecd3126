// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include "transport/mpi_calls.hpp"

/// The part of onebit_comm_create_mpi that is in libonebit. Only the library of an MPI calls it.
///   calls       the MPI's functions; none if MPI is not initialised, or already finalised
///   is_parents  MPI was initialised in a process that this one was forked from
extern "C" ONEBIT_API onebit_status_t onebit_comm_create_mpi_calls(const onebit::MpiCalls* calls, bool is_parents,
                                                                   onebit::MpiCalls::Handle mpi_comm,
                                                                   onebit_comm_t* comm) noexcept;
