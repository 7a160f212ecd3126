// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/read_config.hpp"

#include <cstddef>
#include <optional>

#include "collectives/selection/factors_plan.hpp"
#include "collectives/selection/level_plan.hpp"
#include "compress/codec.hpp"
#include "core/structs.hpp"
#include "numeric/elements.hpp"

namespace onebit {
namespace {

/// What is wrong with a config, whatever the other ranks' are.
Status check_form(const onebit_allreduce_config_t& config, int ranks) {
    for (const Field& field : fields_of(config)) {
        if (field.value.value > field.most) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: %d is not one of its constants", field.value.name,
                                 static_cast<int>(field.value.value));
        }
    }
    if (config.datatype == ONEBIT_INT8) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.datatype: ONEBIT_INT8 is for config.error_type alone");
    }
    if (config.threads > 1024) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.threads: %u is more than 1024", config.threads);
    }
    if (config.count < static_cast<std::uint64_t>(ranks)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.count: %llu is less than the number of ranks, %d",
                             static_cast<unsigned long long>(config.count), ranks);
    }
    if (config.count > SIZE_MAX / 8) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.count: %llu elements don't fit into memory",
                             static_cast<unsigned long long>(config.count));
    }
    return {};
}

template <typename Config>
Status read_config(const Config* caller, Config* config) {
    if (caller == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config is NULL");
    return read_struct("config", caller, config);
}

/// How the buffer is cut. INVALID_ARGUMENT where the caller's numbers don't add up to the buffer.
Status cut(const std::uint64_t* counts, std::uint64_t count, std::size_t ranks, std::vector<Chunk>* shards) {
    if (counts == nullptr && count % ranks != 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.count: %llu can't be cut into %zu equal shards: config.counts says how large each "
                             "is to be",
                             static_cast<unsigned long long>(count), ranks);
    }
    std::uint64_t begin = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const std::uint64_t own = counts == nullptr ? count / ranks : counts[r];
        if (own > count - begin) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                                 "config.counts: those of the ranks up to %zu add up to more than config.count, %llu",
                                 r, static_cast<unsigned long long>(count));
        }
        shards->push_back({r, begin, own});
        begin += own;
    }
    if (begin == count) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.counts add up to %llu, but config.count is %llu",
                         static_cast<unsigned long long>(begin), static_cast<unsigned long long>(count));
}

} // namespace

std::array<Field, 14> fields_of(const onebit_allreduce_config_t& config) {
    return {{
        {{"config.count", config.count}, UINT64_MAX},
        {{"config.datatype", static_cast<std::uint32_t>(config.datatype)}, ONEBIT_INT8},
        {{"config.memory", static_cast<std::uint32_t>(config.memory)}, kMemories - 1},
        {{"config.algorithm", static_cast<std::uint32_t>(config.algorithm)}, kAlgorithms - 1},
        {{"config.codec", static_cast<std::uint32_t>(config.codec)}, ONEBIT_CODEC_POWERSGD},
        {{"config.scale", static_cast<std::uint32_t>(config.scale)}, ONEBIT_SCALE_L1},
        {{"config.group", static_cast<std::uint32_t>(config.group)}, ONEBIT_GROUP_BUFFER},
        {{"config.check", static_cast<std::uint32_t>(config.check)}, ONEBIT_CHECK_FULL_LOW_MEMORY},
        {{"config.op", static_cast<std::uint32_t>(config.op)}, ONEBIT_OP_SUM},
        {{"config.kept", config.kept}, UINT32_MAX},
        {{"config.value_bits", config.value_bits}, UINT32_MAX},
        {{"config.error_type", static_cast<std::uint32_t>(config.error_type)}, ONEBIT_INT8},
        {{"config.matrix_rank", config.matrix_rank}, UINT32_MAX},
        {{"config.rounding", static_cast<std::uint32_t>(config.rounding)}, ONEBIT_ROUNDING_STOCHASTIC},
    }};
}

Status take_config(const onebit_allreduce_config_t* caller, const Transport& transport,
                   onebit_allreduce_config_t* config, std::vector<onebit_level_t>* levels) {
    ONEBIT_RETURN_IF_ERROR(read_config(caller, config));
    ONEBIT_RETURN_IF_ERROR(check_form(*config, transport.size()));
    ONEBIT_RETURN_IF_ERROR(check_shapes(*config));
    ONEBIT_RETURN_IF_ERROR(read_levels(*config, levels));
    return find_stream(transport, config->memory, config->stream, &config->stream);
}

Status take_config(const onebit_shard_config_t* caller, Kind kind, const Transport& transport,
                   onebit_allreduce_config_t* config, std::vector<Chunk>* shards) {
    const int ranks = transport.size();
    onebit_shard_config_t shard = ONEBIT_SHARD_CONFIG_INIT(0);
    ONEBIT_RETURN_IF_ERROR(read_config(caller, &shard));
    config->threads = shard.threads;
    config->count = shard.count;
    config->datatype = shard.datatype;
    config->memory = shard.memory;
    config->algorithm = shard.algorithm;
    config->codec = shard.codec;
    config->scale = shard.scale;
    config->group = shard.group;
    config->check = shard.check;
    config->op = shard.op;
    config->stream = shard.stream;
    config->kept = shard.kept;
    config->value_bits = shard.value_bits;
    config->error_type = shard.error_type;
    config->rounding = shard.rounding;
    ONEBIT_RETURN_IF_ERROR(check_form(*config, ranks));
    if (shard.algorithm > ONEBIT_ALGORITHM_DENSE && shard.algorithm != ONEBIT_ALGORITHM_PIPELINED) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.algorithm: %s is for allreduces: ONEBIT_ALGORITHM_AUTO, _DENSE or _PIPELINED",
                             algorithm_name(shard.algorithm));
    }
    if (kind == Kind::kAllGather && shard.op != ONEBIT_OP_AVERAGE) {
        return Status::error(
            ONEBIT_ERROR_INVALID_ARGUMENT,
            "config.op is for a reduce-scatter: leave it at 0 with an all-gather, which adds up nothing");
    }
    ONEBIT_RETURN_IF_ERROR(find_stream(transport, config->memory, config->stream, &config->stream));
    return cut(shard.counts, shard.count, static_cast<std::size_t>(ranks), shards);
}

Status check_supported(const onebit_allreduce_config_t& config, Kind kind) {
    if (kind != Kind::kAllreduce && config.memory != ONEBIT_MEMORY_HOST) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.memory: reduce-scatters and all-gathers are of ONEBIT_MEMORY_HOST; an allreduce "
                             "can be in a GPU's memory");
    }
    if (config.datatype != ONEBIT_FLOAT32 && config.memory != ONEBIT_MEMORY_HOST) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.datatype: %s is for ONEBIT_MEMORY_HOST; in a GPU's memory values are float32",
                             name_of(config.datatype));
    }
    if (config.codec != ONEBIT_CODEC_POWERSGD || kind != Kind::kAllreduce || config.memory != ONEBIT_MEMORY_HOST) {
        return check_codec(codec_config_of(config));
    }
    return check_factors(config);
}

Status find_stream(const Transport& transport, onebit_memory_t memory, void* asked, void** stream) {
    *stream = asked;
    if (asked != nullptr && memory != ONEBIT_MEMORY_CUDA) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.stream is for values in a GPU's memory: config.memory is not ONEBIT_MEMORY_CUDA");
    }
    const std::optional<void*> only = transport.stream();
    if (!only) return {};
    if (memory != ONEBIT_MEMORY_CUDA) {
        if (!transport.is_stream_ordered()) return {};
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "config.memory: over %s it is ONEBIT_MEMORY_CUDA",
                             transport.name());
    }
    *stream = *only;
    if (asked == nullptr || asked == *stream) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                         "config.stream is not the stream that the communicator was made with, nor NULL");
}

} // namespace onebit
