// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of each build that compare_builds.c loads, compiled with that build's headers.
#include <mpi.h>
#include <onebit/onebit_mpi.h>
#include <stdio.h>

void* make(uint64_t count);
int run(onebit_allreduce_t allreduce, const float* values, float* result);

void* make(uint64_t count) {
    static onebit_comm_t comm = NULL;
    onebit_allreduce_t allreduce = NULL;
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    if ((comm != NULL || onebit_comm_create_mpi(MPI_COMM_WORLD, &comm) == ONEBIT_SUCCESS) &&
        onebit_allreduce_create(comm, &config, &allreduce) == ONEBIT_SUCCESS)
        return allreduce;
    fprintf(stderr, "%s\n", onebit_last_error());
    return NULL;
}

int run(onebit_allreduce_t allreduce, const float* values, float* result) {
    return onebit_allreduce_run(allreduce, values, result);
}
