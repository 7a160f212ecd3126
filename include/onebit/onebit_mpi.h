/*
 * onebit_mpi.h - communicators over MPI.
 *
 * Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ONEBIT_ONEBIT_MPI_H
#define ONEBIT_ONEBIT_MPI_H

#include <mpi.h>
#include <onebit/onebit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a communicator of the ranks of an MPI communicator. The MPI communicator is duplicated once, by MPI_Comm_idup:
 * the library sends no message on the caller's own, which may be freed. Handles made from the new communicator share
 * the duplicate. Each has tags of its own, so that operations of different handles can be in flight together. MPI
 * errors come back as ONEBIT_ERROR_TRANSPORT instead of aborting the program. Until this call returns, this also holds
 * for mpi_comm and MPI_COMM_WORLD in other threads. Collective; blocks.
 *
 * After a rank has died, onebit's calls end (onebit.h, ONEBIT_TIMEOUT). MPI's own calls need not end: MPI_Finalize, and
 * MPI_Comm_free of communicators with the dead rank, may wait for ever. The surviving ranks call MPI_Abort. After
 * MPI_Finalize handles can be destroyed, and calls that need other ranks are TRANSPORT.
 *   mpi_comm  an intracommunicator; MPI must be initialised
 *   comm      [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (MPI not initialised, MPI_COMM_NULL, an intercommunicator; an environment variable with an
 * impossible value, on every rank), MISMATCH (ranks whose libraries differ in more than their patch level), TRANSPORT,
 * TIMEOUT, OUT_OF_MEMORY. A TIMEOUT in MPI_Comm_idup names no rank: MPI doesn't tell which one is missing. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* onebit_comm_create_mpi for a Fortran communicator (an INTEGER, or the MPI_VAL of a type(MPI_Comm)): onebit.f90. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_MPI_H */
