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

/* Makes a communicator of the ranks of an MPI communicator, which is duplicated: the caller's own is never talked on
 * and may be freed. Each handle made from it duplicates it once more, so that operations of different handles can be
 * in flight together. MPI errors come back as ONEBIT_ERROR_TRANSPORT instead of aborting. Collective; blocks.
 *   mpi_comm  an intracommunicator; MPI must be initialised, and not finalised before the handle is destroyed
 *   comm      [out] the handle; set to NULL on failure
 * INVALID_ARGUMENT (MPI not initialised, MPI_COMM_NULL, an intercommunicator; an environment variable with an
 * impossible value, on every rank), MISMATCH (ranks whose libraries differ in more than their patch level), TRANSPORT,
 * TIMEOUT (but not from MPI_Comm_dup), OUT_OF_MEMORY. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi(MPI_Comm mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

/* The same for a communicator as Fortran knows it (an INTEGER, or the MPI_VAL of a type(MPI_Comm)): onebit.f90. */
ONEBIT_API onebit_status_t onebit_comm_create_mpi_fortran(MPI_Fint mpi_comm, onebit_comm_t* comm) ONEBIT_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ONEBIT_ONEBIT_MPI_H */
