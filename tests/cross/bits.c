/* Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Prints a line for each of many averages and trainings, with a hash of every bit that the caller sees. The lines are
 * the same on every instruction set: scripts/cross_aarch64.sh compares those of two.
 */
#include <onebit/onebit.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 3
#define CALLS 6
#define STEPS 14
#define MOST 20000

typedef struct {
    onebit_comm_t comm;
    int rank;
    float values[MOST];
    float gradients[MOST];
    uint64_t hash; /* of what this rank has seen since begin() */
} rank_t;

static rank_t ranks[RANKS];
static pthread_barrier_t meeting;

static void check(onebit_status_t status, const char* what) {
    if (status == ONEBIT_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", what, onebit_last_error());
    exit(1);
}

static void begin(rank_t* rank) {
    rank->hash = 1469598103934665603U;
}

/* FNV-1a. */
static void see(rank_t* rank, const void* data, size_t bytes) {
    const unsigned char* byte = data;
    size_t i;
    for (i = 0; i < bytes; ++i) rank->hash = (rank->hash ^ byte[i]) * 1099511628211U;
}

/* The ranks meet here; rank 0 prints. They must have seen the same. */
static void print(rank_t* rank, const char* what, long first, long second) {
    int other;
    pthread_barrier_wait(&meeting);
    if (rank->rank == 0) {
        for (other = 1; other < RANKS; ++other) {
            if (ranks[other].hash == rank->hash) continue;
            fprintf(stderr, "%s %ld %ld: rank %d has other bits than rank 0\n", what, first, second, other);
            exit(1);
        }
        printf("%s %ld %ld %016llx\n", what, first, second, (unsigned long long)rank->hash);
    }
    pthread_barrier_wait(&meeting);
}

/* Of a magnitude between 2^-14 and 2^1 that differs along the elements; exact on every machine. */
static float number(uint64_t* state) {
    uint32_t bits;
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    bits = (uint32_t)(*state >> 40);
    return (float)((int32_t)(bits & 0xffff) - 0x8000) / (float)(1U << (15 + (bits >> 20 & 15)));
}

static void fill(float* values, size_t count, uint64_t seed) {
    size_t i;
    for (i = 0; i < count; ++i) values[i] = number(&seed);
}

static void average(rank_t* rank, onebit_algorithm_t algorithm, onebit_scale_t scale, size_t count) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    onebit_allreduce_t handle = NULL;
    int call;
    config.algorithm = algorithm;
    config.scale = scale;
    check(onebit_allreduce_create(rank->comm, &config, &handle), "onebit_allreduce_create");
    begin(rank);
    for (call = 0; call < CALLS; ++call) {
        fill(rank->values, count, (uint64_t)(call * RANKS + rank->rank));
        check(onebit_allreduce_run(handle, rank->values, rank->values), "onebit_allreduce_run");
        see(rank, rank->values, count * sizeof(float));
    }
    check(onebit_allreduce_destroy(handle), "onebit_allreduce_destroy");
    print(rank, scale == ONEBIT_SCALE_L2 ? "average.l2" : "average.l1", (long)algorithm, (long)count);
}

static void train(rank_t* rank, onebit_optimizer_kind_t kind, size_t count) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 0.01);
    onebit_tensor_t tensors[2] = {ONEBIT_TENSOR_INIT(rank->values, rank->gradients, count),
                                  ONEBIT_TENSOR_INIT(rank->values + count, rank->gradients + count, count / 3 + 1)};
    const size_t all = count + count / 3 + 1;
    onebit_optimizer_t handle = NULL;
    int step;
    config.weight_decay = 0.01;
    if (kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB) config.freeze_step = 5;
    fill(rank->values, all, 1000);
    check(onebit_optimizer_create(rank->comm, &config, tensors, 2, &handle), "onebit_optimizer_create");
    begin(rank);
    for (step = 0; step < STEPS; ++step) {
        fill(rank->gradients, all, (uint64_t)(step * RANKS + rank->rank));
        check(onebit_optimizer_step(handle), "onebit_optimizer_step");
    }
    see(rank, rank->values, all * sizeof(float));
    check(onebit_optimizer_destroy(handle), "onebit_optimizer_destroy");
    print(rank, "train", (long)kind, (long)count);
}

static void* run(void* mine) {
    static const size_t counts[] = {3, 31, 33, 4095, 4096, 12289};
    static const onebit_algorithm_t algorithms[] = {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT,
                                                    ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING};
    static const onebit_optimizer_kind_t kinds[] = {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB,
                                                    ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_OPTIMIZER_ONEBIT_LAMB,
                                                    ONEBIT_OPTIMIZER_ZERO_ONE_ADAM};
    size_t c, i;
    for (c = 0; c < sizeof counts / sizeof *counts; ++c) {
        for (i = 0; i < sizeof algorithms / sizeof *algorithms; ++i) {
            average(mine, algorithms[i], ONEBIT_SCALE_L2, counts[c]);
            average(mine, algorithms[i], ONEBIT_SCALE_L1, counts[c]);
        }
        for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) train(mine, kinds[i], counts[c]);
    }
    return NULL;
}

int main(void) {
    onebit_comm_t comms[RANKS];
    pthread_t threads[RANKS];
    int rank;
    if (pthread_barrier_init(&meeting, NULL, RANKS) != 0) return 1;
    check(onebit_comm_create_loopback(RANKS, comms), "onebit_comm_create_loopback");
    for (rank = 0; rank < RANKS; ++rank) {
        ranks[rank].comm = comms[rank];
        ranks[rank].rank = rank;
        if (pthread_create(&threads[rank], NULL, run, &ranks[rank]) != 0) return 1;
    }
    for (rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
    for (rank = 0; rank < RANKS; ++rank) check(onebit_comm_destroy(comms[rank]), "onebit_comm_destroy");
    return 0;
}
