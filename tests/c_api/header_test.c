/* Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The headers are valid C11 and every function they declare is in the library: this file is compiled pedantically, and
 * the table below makes the linker find each one. check_symbols.py keeps the table complete.
 */
#include <onebit/onebit.h>
#include <onebit/onebit_mpi.h>
#include <stdio.h>
#include <string.h>

typedef void (*AnyFunction)(void);

typedef struct Row {
    const char* name;
    AnyFunction function;
} Row;

#define ROW(function_) \
    { #function_, (AnyFunction)(function_) }

static const Row rows[] = {
    ROW(onebit_status_string),
    ROW(onebit_last_error),
    ROW(onebit_version),
    ROW(onebit_comm_create_loopback),
    ROW(onebit_comm_rank),
    ROW(onebit_comm_size),
    ROW(onebit_comm_destroy),
    ROW(onebit_allreduce_create),
    ROW(onebit_allreduce_run),
    ROW(onebit_allreduce_start),
    ROW(onebit_allreduce_test),
    ROW(onebit_allreduce_wait),
    ROW(onebit_allreduce_set_algorithm),
    ROW(onebit_allreduce_set_mask),
    ROW(onebit_allreduce_get_info),
    ROW(onebit_allreduce_destroy),
    ROW(onebit_allreduce_reset),
    ROW(onebit_allreduce_get_error),
    ROW(onebit_allreduce_state_size),
    ROW(onebit_allreduce_pack_state),
    ROW(onebit_allreduce_unpack_state),
    ROW(onebit_allreduce_save),
    ROW(onebit_allreduce_load),
    ROW(onebit_optimizer_create),
    ROW(onebit_optimizer_step),
    ROW(onebit_optimizer_set_lr),
    ROW(onebit_optimizer_freeze),
    ROW(onebit_optimizer_get_info),
    ROW(onebit_optimizer_destroy),
    ROW(onebit_comm_create_mpi),
};

int onebit_header_test_cpp(void); /* header_test.cpp */

static int failures = 0;

static void check(int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "FAILED: %s\n", what);
    ++failures;
}

static void check_macros(void) {
    const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(12345);
    const onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    const onebit_optimizer_config_t adam = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 0.25);
    const onebit_optimizer_info_t adam_info = ONEBIT_OPTIMIZER_INFO_INIT;
    float parameters[3] = {0}, gradients[3] = {0};
    const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters, gradients, 3);

    check(config.size == sizeof config && config.version == 1 && config.threads == 0, "allreduce config: head");
    check(config.count == 12345 && config.datatype == ONEBIT_FLOAT32 && config.memory == ONEBIT_MEMORY_HOST,
          "allreduce config: data");
    check(config.algorithm == ONEBIT_ALGORITHM_AUTO && config.codec == ONEBIT_CODEC_SIGN, "allreduce config: method");
    check(config.scale == ONEBIT_SCALE_L2 && config.group == ONEBIT_GROUP_BLOCK, "allreduce config: scale");
    check(config.check == ONEBIT_CHECK_FULL, "allreduce config: check");
    check(info.size == sizeof info && info.version == 1 && info.calls == 0 && info.reason[0] == 0, "allreduce info");
    check(adam.size == sizeof adam && adam.version == 1, "optimizer config: head");
    check(adam.kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM && adam.lr == 0.25, "optimizer config: arguments");
    check(adam.beta1 == 0.9 && adam.beta2 == 0.999 && adam.eps == 1e-8, "optimizer config: moments");
    check(adam.weight_decay == 0.0 && adam.bias_correction == 1 && adam.threads == 0, "optimizer config: decay");
    check(adam.freeze_step == ONEBIT_FREEZE_AUTO && adam.lr_warmup_steps == 0, "optimizer config: freeze");
    check(adam.scale == ONEBIT_SCALE_L2 && adam.group == ONEBIT_GROUP_BLOCK, "optimizer config: scale");
    check(adam_info.size == sizeof adam_info && adam_info.version == 1 && adam_info.steps == 0, "optimizer info");
    check(tensor.size == sizeof tensor && tensor.version == 1 && tensor.count == 3, "tensor: head");
    check(tensor.parameters == parameters && tensor.gradients == gradients && tensor.name == NULL, "tensor: pointers");
}

int main(void) {
    char version[32];
    size_t i;
    for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) check(rows[i].function != NULL, rows[i].name);
    check_macros();
    snprintf(version, sizeof version, "%d.%d.%d", ONEBIT_VERSION_MAJOR, ONEBIT_VERSION_MINOR, ONEBIT_VERSION_PATCH);
    check(strcmp(version, onebit_version()) == 0, "the header's version is the library's");
    check(strcmp(onebit_status_string(ONEBIT_ERROR_TIMEOUT), "ONEBIT_ERROR_TIMEOUT") == 0, "status names");
    check(onebit_header_test_cpp() == 0, "the headers in C++");
    return failures != 0;
}
