/* Copyright 2026 The onebit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The headers are valid C11 and every function they declare is in the library: this file is compiled pedantically, and
 * the table below makes the linker find each one. check_symbols.py keeps the table complete.
 */
#include <onebit/onebit.h>
#include <onebit/onebit_mpi.h>
#include <onebit/onebit_nccl.h>
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
    ROW(onebit_version_number),
    ROW(onebit_set_log_callback),
    ROW(onebit_comm_create_loopback),
    ROW(onebit_bootstrap_init),
    ROW(onebit_comm_create_bootstrap),
    ROW(onebit_comm_split),
    ROW(onebit_comm_rank),
    ROW(onebit_comm_size),
    ROW(onebit_comm_info_init),
    ROW(onebit_comm_get_info),
    ROW(onebit_comm_set),
    ROW(onebit_comm_tune),
    ROW(onebit_comm_tune_codecs),
    ROW(onebit_mem_alloc),
    ROW(onebit_mem_free),
    ROW(onebit_comm_progress),
    ROW(onebit_comm_abort),
    ROW(onebit_comm_destroy),
    ROW(onebit_allreduce_config_init),
    ROW(onebit_allreduce_choose_codec),
    ROW(onebit_allreduce_create),
    ROW(onebit_allreduce_run),
    ROW(onebit_allreduce_start),
    ROW(onebit_allreduce_test),
    ROW(onebit_allreduce_wait),
    ROW(onebit_allreduce_set_callback),
    ROW(onebit_allreduce_set_algorithm),
    ROW(onebit_allreduce_set_mask),
    ROW(onebit_allreduce_info_init),
    ROW(onebit_allreduce_get_info),
    ROW(onebit_allreduce_destroy),
    ROW(onebit_allreduce_reset),
    ROW(onebit_allreduce_get_error),
    ROW(onebit_allreduce_get_level),
    ROW(onebit_level_info_init),
    ROW(onebit_level_init),
    ROW(onebit_allreduce_state_size),
    ROW(onebit_allreduce_pack_state),
    ROW(onebit_allreduce_unpack_state),
    ROW(onebit_allreduce_save),
    ROW(onebit_allreduce_load),
    ROW(onebit_shard_config_init),
    ROW(onebit_reduce_scatter_create),
    ROW(onebit_all_gather_create),
    ROW(onebit_reduce_scatter_run),
    ROW(onebit_all_gather_run),
    ROW(onebit_reduce_scatter_start),
    ROW(onebit_reduce_scatter_test),
    ROW(onebit_reduce_scatter_wait),
    ROW(onebit_reduce_scatter_set_callback),
    ROW(onebit_all_gather_start),
    ROW(onebit_all_gather_test),
    ROW(onebit_all_gather_wait),
    ROW(onebit_all_gather_set_callback),
    ROW(onebit_reduce_scatter_set_algorithm),
    ROW(onebit_all_gather_set_algorithm),
    ROW(onebit_reduce_scatter_reset),
    ROW(onebit_reduce_scatter_get_error),
    ROW(onebit_reduce_scatter_state_size),
    ROW(onebit_reduce_scatter_pack_state),
    ROW(onebit_reduce_scatter_unpack_state),
    ROW(onebit_reduce_scatter_save),
    ROW(onebit_reduce_scatter_load),
    ROW(onebit_all_gather_reset),
    ROW(onebit_all_gather_get_error),
    ROW(onebit_all_gather_state_size),
    ROW(onebit_all_gather_pack_state),
    ROW(onebit_all_gather_unpack_state),
    ROW(onebit_all_gather_save),
    ROW(onebit_all_gather_load),
    ROW(onebit_shard_info_init),
    ROW(onebit_reduce_scatter_get_info),
    ROW(onebit_all_gather_get_info),
    ROW(onebit_reduce_scatter_destroy),
    ROW(onebit_all_gather_destroy),
    ROW(onebit_tensor_init),
    ROW(onebit_param_group_init),
    ROW(onebit_optimizer_config_init),
    ROW(onebit_optimizer_create),
    ROW(onebit_optimizer_step),
    ROW(onebit_optimizer_step_start),
    ROW(onebit_optimizer_step_test),
    ROW(onebit_optimizer_step_wait),
    ROW(onebit_optimizer_set_callback),
    ROW(onebit_optimizer_cancel_step),
    ROW(onebit_optimizer_grad_ready),
    ROW(onebit_optimizer_set_gradients),
    ROW(onebit_optimizer_set_all_gradients),
    ROW(onebit_optimizer_set_parameters),
    ROW(onebit_optimizer_set_group),
    ROW(onebit_optimizer_set_max_grad_norm),
    ROW(onebit_optimizer_set_lr),
    ROW(onebit_optimizer_set_group_lr),
    ROW(onebit_optimizer_set_gradient_scale),
    ROW(onebit_optimizer_freeze),
    ROW(onebit_optimizer_reset_error),
    ROW(onebit_optimizer_save),
    ROW(onebit_optimizer_load),
    ROW(onebit_optimizer_state_size),
    ROW(onebit_optimizer_pack_state),
    ROW(onebit_optimizer_unpack_state),
    ROW(onebit_optimizer_get_state),
    ROW(onebit_optimizer_set_state),
    ROW(onebit_optimizer_set_steps),
    ROW(onebit_optimizer_get_error),
    ROW(onebit_optimizer_info_init),
    ROW(onebit_optimizer_get_info),
    ROW(onebit_optimizer_destroy),
    ROW(onebit_comm_create_mpi),
    ROW(onebit_comm_create_mpi_fortran),
    ROW(onebit_comm_bootstrap_nccl),
    ROW(onebit_comm_create_gpu),
    ROW(onebit_comm_create_nccl),
};

int onebit_header_test_cpp(void); /* header_test.cpp */

static int failures = 0;

static void check(int condition, const char* what) {
    if (condition) return;
    fprintf(stderr, "FAILED: %s\n", what);
    ++failures;
}

static void check_allreduce_macros(void) {
    const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(12345);
    const onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    const onebit_level_t level = ONEBIT_LEVEL_INIT(9);
    const onebit_level_info_t level_info = ONEBIT_LEVEL_INFO_INIT;
    const onebit_comm_info_t comm = ONEBIT_COMM_INFO_INIT;

    check(comm.size == sizeof comm && comm.version == 1 && comm.nodes == 0 && comm.reason[0] == 0, "comm info");
    check(config.size == sizeof config && config.version == 1 && config.threads == 0, "allreduce config: head");
    check(config.count == 12345 && config.datatype == ONEBIT_FLOAT32 && config.memory == ONEBIT_MEMORY_HOST,
          "allreduce config: data");
    check(config.algorithm == ONEBIT_ALGORITHM_AUTO && config.codec == ONEBIT_CODEC_SIGN, "allreduce config: method");
    check(config.scale == ONEBIT_SCALE_L2 && config.group == ONEBIT_GROUP_BLOCK, "allreduce config: scale");
    check(config.check == ONEBIT_CHECK_FULL && config.kept == 0 && config.value_bits == 0, "allreduce config: check");
    check(config.matrix_rank == 0 && config.shapes == NULL && config.num_shapes == 0, "allreduce config: matrices");
    check(config.rounding == ONEBIT_ROUNDING_NEAREST, "allreduce config: rounding");
    check(config.num_levels == 0 && config.levels == NULL, "allreduce config: levels");
    check(level.size == sizeof level && level.version == 1 && level.color == 9 && level.compressed == 0, "level: head");
    check(level.codec == ONEBIT_CODEC_SIGN && level.kept == 0 && level.error_type == ONEBIT_FLOAT32, "level: codec");
    check(level_info.size == sizeof level_info && level_info.version == 1 && level_info.count == 0, "level info");
    check(info.size == sizeof info && info.version == 1 && info.calls == 0 && info.reason[0] == 0, "allreduce info");
}

static void check_shard_macros(void) {
    const onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(12345);
    const onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;

    check(config.size == sizeof config && config.version == 1 && config.threads == 0, "shard config: head");
    check(config.count == 12345 && config.counts == NULL, "shard config: shards");
    check(config.datatype == ONEBIT_FLOAT32 && config.memory == ONEBIT_MEMORY_HOST, "shard config: data");
    check(config.algorithm == ONEBIT_ALGORITHM_AUTO && config.codec == ONEBIT_CODEC_SIGN, "shard config: method");
    check(config.scale == ONEBIT_SCALE_L2 && config.group == ONEBIT_GROUP_BLOCK, "shard config: scale");
    check(config.check == ONEBIT_CHECK_FULL && config.op == ONEBIT_OP_AVERAGE && config.stream == NULL,
          "shard config: check");
    check(info.size == sizeof info && info.version == 1 && info.shard_count == 0 && info.reason[0] == 0, "shard info");
}

static void check_optimizer_macros(void) {
    const onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, 0.25);
    const onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
    const onebit_param_group_t group = ONEBIT_PARAM_GROUP_INIT(0.5);
    float parameters[3] = {0}, gradients[3] = {0};
    const onebit_tensor_t tensor = ONEBIT_TENSOR_INIT(parameters, gradients, 3);

    check(config.size == sizeof config && config.version == 1, "optimizer config: head");
    check(config.kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM && config.lr == 0.25, "optimizer config: arguments");
    check(config.beta1 == 0.9 && config.beta2 == 0.999 && config.eps == 1e-8, "optimizer config: moments");
    check(config.weight_decay == 0.0 && config.bias_correction == 1 && config.threads == 0, "optimizer config: decay");
    check(config.groups == NULL && config.num_groups == 0 && config.max_grad_norm == 0.0, "optimizer config: groups");
    check(config.freeze_step == ONEBIT_FREEZE_AUTO && config.lr_warmup_steps == 0, "optimizer config: freeze");
    check(config.freeze_window == 0 && config.freeze_band == 0.0, "optimizer config: the freeze's rule");
    check(config.compressed == ONEBIT_COMPRESSED_UPDATES, "optimizer config: what travels");
    check(config.follow_interval == 0 && config.thaw_ratio == 0.0, "optimizer config: after the freeze");
    check(config.missing_gradients == 0, "optimizer config: missing gradients");
    check(config.levels == NULL && config.num_levels == 0, "optimizer config: levels");
    check(config.algorithm == ONEBIT_ALGORITHM_AUTO && config.codec == ONEBIT_CODEC_SIGN, "optimizer config: exchange");
    check(config.kept == 0 && config.value_bits == 0 && config.error_type == ONEBIT_FLOAT32, "optimizer config: codec");
    check(config.scale == ONEBIT_SCALE_L2 && config.group == ONEBIT_GROUP_BLOCK, "optimizer config: scale");
    check(config.min_trust == 0.01 && config.max_trust == 10.0 && config.trust_beta == 0.9, "optimizer config: trust");
    check(config.momentum_scaling == 1, "optimizer config: 1-bit LAMB");
    check(config.memory == ONEBIT_MEMORY_HOST && config.stream == NULL, "optimizer config: memory");
    check(config.variance_updates == 16 && config.local_step_scaler == 32768 && config.local_steps == 16,
          "optimizer config: 0/1 Adam");
    check(group.size == sizeof group && group.version == 1 && group.no_compress == 0, "group: head");
    check(
        group.lr == 0.5 && group.beta1 == 0.9 && group.beta2 == 0.999 && group.eps == 1e-8 && group.weight_decay == 0.0,
        "group: settings");
    check(info.size == sizeof info && info.version == 1 && info.steps == 0 && info.grad_norm == 0.0, "optimizer info");
    check(info.freeze_wait == ONEBIT_FREEZE_WAIT_NONE && info.freeze_ratio == 0.0, "optimizer info: the freeze");
    check(info.thaws == 0 && info.variance_ratio == 0.0 && info.variance_tensor == 0, "optimizer info: after it");
    check(info.step_ratio == 0.0 && info.step_tensor == 0, "optimizer info: shared scales");
    check(info.algorithm == ONEBIT_ALGORITHM_AUTO && info.reason[0] == '\0', "optimizer info: algorithm");
    check(tensor.size == sizeof tensor && tensor.version == 1 && tensor.count == 3 && tensor.group == 0,
          "tensor: head");
    check(tensor.parameters == parameters && tensor.gradients == gradients && tensor.name == NULL, "tensor: pointers");
    check(tensor.gradient_type == ONEBIT_FLOAT32 && tensor.copy_type == ONEBIT_FLOAT32 && tensor.copy == NULL,
          "tensor: types");
}

int main(void) {
    char version[32];
    size_t i;
    for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) check(rows[i].function != NULL, rows[i].name);
    check_allreduce_macros();
    check_shard_macros();
    check_optimizer_macros();
    snprintf(version, sizeof version, "%d.%d.%d", ONEBIT_VERSION_MAJOR, ONEBIT_VERSION_MINOR, ONEBIT_VERSION_PATCH);
    check(strcmp(version, onebit_version()) == 0, "the header's version is the library's");
    check(onebit_version_number() == ONEBIT_VERSION_NUMBER, "so is its number");
    check(ONEBIT_VERSION_NUMBER / 10000 == ONEBIT_VERSION_MAJOR && ONEBIT_VERSION_NUMBER % 100 == ONEBIT_VERSION_PATCH,
          "which has the parts of the version");
    check(strcmp(onebit_status_string(ONEBIT_ERROR_TIMEOUT), "ONEBIT_ERROR_TIMEOUT") == 0, "status names");
    check(onebit_header_test_cpp() == 0, "the headers in C++");
    return failures != 0;
}
