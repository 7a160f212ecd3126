// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions that fill in defaults. The header's macros hold the defaults.
#include "core/structs.hpp"

#include "c_api/guard.hpp"

using onebit::Status;

namespace {

template <typename Struct>
onebit_status_t init_struct(const char* name, Struct* caller, std::size_t size, const Struct& defaults) noexcept {
    return onebit::guard([&] {
        if (caller == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s is NULL", name);
        ONEBIT_RETURN_IF_ERROR(onebit::check_struct<Struct>(name, {size, defaults.version}));
        onebit::write_struct(defaults, size, caller);
        return Status();
    });
}

} // namespace

onebit_status_t onebit_comm_info_init(onebit_comm_info_t* info, size_t size) noexcept {
    return init_struct("info", info, size, ONEBIT_COMM_INFO_INIT);
}

onebit_status_t onebit_bootstrap_init(onebit_bootstrap_t* bootstrap, size_t size, int rank, int ranks,
                                      onebit_allgather_fn allgather, void* context) noexcept {
    return init_struct("bootstrap", bootstrap, size, ONEBIT_BOOTSTRAP_INIT(rank, ranks, allgather, context));
}

onebit_status_t onebit_allreduce_config_init(onebit_allreduce_config_t* config, size_t size, uint64_t count) noexcept {
    return init_struct("config", config, size, ONEBIT_ALLREDUCE_CONFIG_INIT(count));
}

onebit_status_t onebit_level_init(onebit_level_t* level, size_t size, int32_t color) noexcept {
    return init_struct("level", level, size, ONEBIT_LEVEL_INIT(color));
}

onebit_status_t onebit_level_info_init(onebit_level_info_t* info, size_t size) noexcept {
    return init_struct("info", info, size, ONEBIT_LEVEL_INFO_INIT);
}

onebit_status_t onebit_allreduce_info_init(onebit_allreduce_info_t* info, size_t size) noexcept {
    return init_struct("info", info, size, ONEBIT_ALLREDUCE_INFO_INIT);
}

onebit_status_t onebit_shard_config_init(onebit_shard_config_t* config, size_t size, uint64_t count) noexcept {
    return init_struct("config", config, size, ONEBIT_SHARD_CONFIG_INIT(count));
}

onebit_status_t onebit_shard_info_init(onebit_shard_info_t* info, size_t size) noexcept {
    return init_struct("info", info, size, ONEBIT_SHARD_INFO_INIT);
}

onebit_status_t onebit_tensor_init(onebit_tensor_t* tensor, size_t size, float* parameters, const void* gradients,
                                   uint64_t count) noexcept {
    return init_struct("tensor", tensor, size, ONEBIT_TENSOR_INIT(parameters, gradients, count));
}

onebit_status_t onebit_param_group_init(onebit_param_group_t* group, size_t size, double lr) noexcept {
    return init_struct("group", group, size, ONEBIT_PARAM_GROUP_INIT(lr));
}

onebit_status_t onebit_optimizer_config_init(onebit_optimizer_config_t* config, size_t size,
                                             onebit_optimizer_kind_t kind, double lr) noexcept {
    return init_struct("config", config, size, ONEBIT_OPTIMIZER_CONFIG_INIT(kind, lr));
}

onebit_status_t onebit_optimizer_info_init(onebit_optimizer_info_t* info, size_t size) noexcept {
    return init_struct("info", info, size, ONEBIT_OPTIMIZER_INFO_INIT);
}
