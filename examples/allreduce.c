// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The smallest useful onebit program: averages a gradient over the ranks, again and again, sending one bit for each
// element.
//
//     mpirun -n 4 example_allreduce

#include <onebit/onebit_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20, STEPS = 10 };

// Handles every error: prints onebit's message, and ends all ranks.
static void check(onebit_status_t status) {
    if (status == ONEBIT_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", onebit_status_string(status), onebit_last_error());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

// Stands for a backward pass: values in [-1, 1), different on every rank and at every step.
static void compute_gradient(float* gradient, int rank, int step) {
    unsigned state = 1u + (unsigned)(rank + 1000 * step);
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        gradient[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
    }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);

    onebit_comm_t comm;
    int rank;
    check(onebit_comm_create_mpi(MPI_COMM_WORLD, &comm));
    check(onebit_comm_rank(comm, &rank));

    // With AUTO, onebit compresses only where compression pays. This program always compresses, to show it.
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(COUNT);
    config.algorithm = ONEBIT_ALGORITHM_FLAT;
    onebit_allreduce_t allreduce;
    check(onebit_allreduce_create(comm, &config, &allreduce));

    float* gradient = malloc(COUNT * sizeof *gradient);
    if (!gradient) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    for (int step = 0; step < STEPS; step++) {
        compute_gradient(gradient, rank, step);
        check(onebit_allreduce_run(allreduce, gradient, gradient)); // in place: now the average, on every rank
    }

    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    check(onebit_allreduce_get_info(allreduce, &info));
    if (rank == 0) {
        printf("%d elements over %s: %llu bytes sent per call by this rank; a float32 ring allreduce: %llu bytes\n",
               COUNT, info.transport, (unsigned long long)info.last_bytes_sent, (unsigned long long)info.dense_bytes);
    }

    free(gradient);
    check(onebit_allreduce_destroy(allreduce));
    check(onebit_comm_destroy(comm));
    MPI_Finalize();
    return 0;
}
