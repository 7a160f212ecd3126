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

/* Makes a communicator of the ranks of an MPI communicator, which is duplicated once, by MPI_Comm_idup: the caller's
 * own is never talked on and may be freed. Handles made from it share the duplicate, each with tags of its own, so that
 * operations of different handles can be in flight together. MPI errors come back as ONEBIT_ERROR_TRANSPORT instead of
 * aborting the program; until this call returns, that goes for mpi_comm and MPI_COMM_WORLD in other threads, too.
 * Collective; blocks.
 *
 * After a rank has died, onebit's calls end (onebit.h, ONEBIT_TIMEOUT), MPI's own need not: MPI_Finalize and
 * MPI_Comm_free of communicators with the dead rank may wait for ever. A program that is left over calls MPI_Abort.
 * After MPI_Finalize handles can be destroyed, and calls that ask other ranks are TRANSPORT.
 *   mpi_comm  an intracommunicator; MPI must be initialised
 *   comm      [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (MPI not initialised, MPI_COMM_NULL, an intercommunicator; an environment variable with an
 * impossible value, on every rank), MISMATCH (ranks whose libraries differ in more than their patch level), TRANSPORT,
 * TIMEOUT, OUT_OF_MEMORY. A TIMEOUT in MPI_Comm_idup names no rank: MPI doesn't tell which one is missing. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* The same for a communicator as Fortran knows it (an INTEGER, or the MPI_VAL of a type(MPI_Comm)): onebit.f90. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_MPI_H */
