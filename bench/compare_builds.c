// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Allreduces of two builds of the library in one process, in turn: the machine's other work, and the choice of cores
// for the ranks, affect both alike. scripts/compare_builds.sh compiles it, and the two shared objects that it loads.
//
//     compare_builds OLD.so NEW.so ROUNDS BYTES...
//
// A round is a block of calls of each build. Printed: medians of a call's time, over blocks and averaged over the
// ranks, and the quartiles of the ratio.
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void* (*make_fn)(uint64_t count);
typedef int (*run_fn)(void* allreduce, const float* values, float* result);

static void check(int ok, const char* what) {
    if (ok) return;
    fprintf(stderr, "compare_builds: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static int compare(const void* a, const void* b) {
    const double x = *(const double*)a;
    const double y = *(const double*)b;
    return (x > y) - (x < y);
}

static double quantile(double* sorted, int count, double q) {
    return sorted[(int)(q * (count - 1))];
}

static double block_us(run_fn run, void* allreduce, int calls, const float* values, float* result) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; i++) check(run(allreduce, values, result) == 0, "a call failed");
    double us = (MPI_Wtime() - begin) * 1e6 / calls;
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return us / ranks;
}

static void compare_at(const make_fn* make, const run_fn* run, uint64_t bytes, int rounds) {
    const uint64_t count = bytes / sizeof(float);
    const int calls = bytes <= 8192 ? 500 : bytes <= 65536 ? 100 : 10;
    float* values = calloc(count, sizeof *values);
    float* result = calloc(count, sizeof *result);
    double* times[3]; // of the old build, of the new one, and the second over the first
    for (int k = 0; k < 3; k++) check((times[k] = calloc((size_t)rounds, sizeof(double))) != NULL, "out of memory");
    check(values != NULL && result != NULL, "out of memory");
    for (uint64_t i = 0; i < count; i++) values[i] = (float)(i % 7) - 3;
    void* allreduces[2] = {make[0](count), make[1](count)};
    check(allreduces[0] != NULL && allreduces[1] != NULL, "a handle could not be created");
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            const int k = (round + turn) % 2;
            times[k][round] = block_us(run[k], allreduces[k], calls, values, result);
        }
        times[2][round] = times[1][round] / times[0][round];
    }
    for (int k = 0; k < 3; k++) qsort(times[k], (size_t)rounds, sizeof(double), compare);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%10llu  %10.3f  %10.3f  %8.3f  %8.3f  %8.3f\n", (unsigned long long)bytes,
               quantile(times[0], rounds, 0.5), quantile(times[1], rounds, 0.5), quantile(times[2], rounds, 0.5),
               quantile(times[2], rounds, 0.25), quantile(times[2], rounds, 0.75));
    for (int k = 0; k < 3; k++) free(times[k]);
    free(values);
    free(result);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    check(argc > 4, "usage: compare_builds OLD.so NEW.so ROUNDS BYTES...");
    make_fn make[2];
    run_fn run[2];
    for (int k = 0; k < 2; k++) {
        void* const build = dlopen(argv[1 + k], RTLD_NOW | RTLD_LOCAL);
        check(build != NULL, build == NULL ? dlerror() : "");
        *(void**)&make[k] = dlsym(build, "make");
        *(void**)&run[k] = dlsym(build, "run");
        check(make[k] != NULL && run[k] != NULL, "a shared object is not compare_builds_shim.c's");
    }
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("# bytes     old [us]    new [us]    new/old  quarter  three quarters\n");
    for (int i = 4; i < argc; i++) compare_at(make, run, strtoull(argv[i], NULL, 10), atoi(argv[3]));
    MPI_Finalize();
    return 0;
}
