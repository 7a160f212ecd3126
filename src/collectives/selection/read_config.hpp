// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/communicator/compare_ranks.hpp"
#include "core/partition.hpp"
#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The kinds of collectives, as ranks compare them.
enum class Kind : std::uint64_t { kAllreduce = 0, kReduceScatter = 1, kAllGather = 2 };

/// A member of the config that must be the same on every rank, and its greatest valid value.
struct Field {
    NamedValue value;
    std::uint64_t most;
};

std::array<Field, 14> fields_of(const onebit_allreduce_config_t& config);

/// Reads the caller's config, with its levels and the stream that it means. Says what is wrong with the config,
/// whatever the other ranks' are. Local.
Status take_config(const onebit_allreduce_config_t* caller, const Transport& transport,
                   onebit_allreduce_config_t* config, std::vector<onebit_level_t>* levels);
/// The same for a collective with shards; `config`: that of an allreduce that is like it.
Status take_config(const onebit_shard_config_t* caller, Kind kind, const Transport& transport,
                   onebit_allreduce_config_t* config, std::vector<Chunk>* shards);

/// What this version can't do. All ranks find the same, once they are known to have the same config.
Status check_supported(const onebit_allreduce_config_t& config, Kind kind);

/// Checks a config's memory and stream, and says which stream is meant: the transport's, if it has one.
Status find_stream(const Transport& transport, onebit_memory_t memory, void* asked, void** stream);

} // namespace onebit
