/* Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of version 0.1: compiled against the stored headers of each release, run with the library of today. Two
 * ranks, which are threads, average values, and train; every struct goes in or comes out.
 */
#include <onebit/onebit.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RANKS 2
#define COUNT 5000

static int failures[RANKS];

static void check(int rank, int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "FAILED on rank %d: %s; the last error: %s\n", rank, what, onebit_last_error());
    ++failures[rank];
}

static void check_ok(int rank, onebit_status_t status, const char* what) {
    check(rank, status == ONEBIT_SUCCESS, what);
}

static void average(int rank, onebit_comm_t comm) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(COUNT);
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    onebit_allreduce_t handle = NULL;
    static float values[RANKS][COUNT];
    size_t i;
    config.algorithm = ONEBIT_ALGORITHM_FLAT;
    config.threads = 1;
    for (i = 0; i < COUNT; ++i) values[rank][i] = i % 2 == 0 ? 1.0F : -1.0F;
    check_ok(rank, onebit_allreduce_create(comm, &config, &handle), "onebit_allreduce_create");
    check_ok(rank, onebit_allreduce_run(handle, values[rank], values[rank]), "onebit_allreduce_run");
    check(rank, values[rank][COUNT - 2] == 1.0F && values[rank][COUNT - 1] == -1.0F, "the average");
    check_ok(rank, onebit_allreduce_get_info(handle, &info), "onebit_allreduce_get_info");
    check(rank, info.size == sizeof info && info.calls == 1 && info.threads == 1, "the allreduce's info");
    check(rank, info.algorithm == ONEBIT_ALGORITHM_FLAT && strlen(info.reason) > 0, "the end of the allreduce's info");
    check_ok(rank, onebit_allreduce_destroy(handle), "onebit_allreduce_destroy");
}

static void train(int rank, onebit_comm_t comm) {
    onebit_param_group_t groups[2] = {ONEBIT_PARAM_GROUP_INIT(0.5), ONEBIT_PARAM_GROUP_INIT(0.25)};
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0.5);
    onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
    onebit_optimizer_t handle = NULL;
    static float x[RANKS][2][COUNT], g[RANKS][2][COUNT];
    onebit_tensor_t tensors[2] = {ONEBIT_TENSOR_INIT(x[rank][0], g[rank][0], COUNT),
                                  ONEBIT_TENSOR_INIT(x[rank][1], g[rank][1], COUNT)};
    size_t i;
    for (i = 0; i < COUNT; ++i) g[rank][0][i] = g[rank][1][i] = 1.0F;
    tensors[1].group = 1;
    config.groups = groups;
    config.num_groups = 2;
    config.max_grad_norm = 1e6;
    check_ok(rank, onebit_optimizer_create(comm, &config, tensors, 2, &handle), "onebit_optimizer_create");
    check_ok(rank, onebit_optimizer_step(handle), "onebit_optimizer_step");
    check(rank, x[rank][0][0] < -0.49F && x[rank][0][COUNT - 1] < -0.49F, "the first tensor");
    check(rank, x[rank][1][0] > -0.26F && x[rank][1][COUNT - 1] < -0.24F, "the second tensor");
    check_ok(rank, onebit_optimizer_get_info(handle, &info), "onebit_optimizer_get_info");
    check(rank, info.size == sizeof info && info.steps == 1 && info.count == 2 * COUNT, "the optimizer's info");
    check(rank, info.grad_norm > 99.9 && info.grad_norm < 100.1, "the end of the optimizer's info");
    check_ok(rank, onebit_optimizer_destroy(handle), "onebit_optimizer_destroy");
}

static void* run(void* comm_of_rank) {
    onebit_comm_t comm = *(onebit_comm_t*)comm_of_rank;
    onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
    int rank = 0;
    check_ok(0, onebit_comm_rank(comm, &rank), "onebit_comm_rank");
    check_ok(rank, onebit_comm_get_info(comm, &info), "onebit_comm_get_info");
    check(rank, info.size == sizeof info && info.nodes == 1 && strcmp(info.transport, "loopback") == 0,
          "the communicator's info");
    average(rank, comm);
    train(rank, comm);
    check_ok(rank, onebit_comm_destroy(comm), "onebit_comm_destroy");
    return NULL;
}

int main(void) {
    onebit_comm_t comms[RANKS];
    pthread_t threads[RANKS];
    int rank;
    check(0, onebit_version_number() >= ONEBIT_VERSION_NUMBER, "the library is at least as new as the headers");
    check_ok(0, onebit_comm_create_loopback(RANKS, comms), "onebit_comm_create_loopback");
    if (failures[0] != 0) return 1;
    for (rank = 0; rank < RANKS; ++rank) {
        if (pthread_create(&threads[rank], NULL, run, &comms[rank]) != 0) return 1;
    }
    for (rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
    return failures[0] != 0 || failures[1] != 0;
}
