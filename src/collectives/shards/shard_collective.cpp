// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/shard_collective.hpp"

#include <cstdio>

#include "core/hash.hpp"

namespace onebit {

/// A saved state is of one kind, and of one way to cut.
ShardCollective::ShardCollective(Parts parts, Kind kind, std::vector<Chunk> shards)
    : Collective(std::move(parts)),
      shards_(std::move(shards)),
      exact_(numeric_kernels(codec_->kernels()), plan_.datatype, plan_.threads) {
    std::vector<std::uint64_t> words = {static_cast<std::uint64_t>(kind)};
    for (const Chunk& shard : shards_) words.push_back(shard.count);
    mask_hash_ = hash_bytes(words.data(), words.size() * sizeof(std::uint64_t));
}

void ShardCollective::fill_info(onebit_shard_info_t* info) const {
    fill_common(info);
    info->shard_begin = own_shard().begin;
    info->shard_count = own_shard().count;
    info->dense_bytes = dense_bytes();
    std::snprintf(info->transport, sizeof(info->transport), "%s", channel_->name());
}

} // namespace onebit
