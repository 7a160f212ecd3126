// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A save in the program's memory: the contents of a file, without an agreement before it. A hash of the state that is
// the same on every rank identifies the save, instead of a file's random number.

#include <array>
#include <memory>
#include <vector>

#include "collectives/shards/block_gather.hpp"
#include "core/hash.hpp"
#include "optim/fused_optimizer.hpp"
#include "optim/saved_blobs.hpp"

namespace onebit {

Status FusedOptimizer::state_size(std::uint64_t* bytes) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    if (bytes == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes is NULL");
    const Transport& channel = buckets_.front().allreduce->channel();
    const std::vector<ArrayRow> rows = rows_of(stage(), static_cast<std::uint32_t>(channel.rank()),
                                               static_cast<std::uint32_t>(channel.size()), seat());
    *bytes = SavedSizes(all_numbers().size(), rows).all;
    return {};
}

Status FusedOptimizer::pack_state(void* buffer, std::uint64_t bytes) {
    std::uint64_t needed = 0;
    ONEBIT_RETURN_IF_ERROR(state_size(&needed));
    if (buffer == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "buffer is NULL");
    if (bytes < needed) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "bytes: %llu, but the state has %llu",
                             static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(needed));
    }
    for (Bucket& bucket : buckets_) ONEBIT_RETURN_IF_ERROR(bucket.allreduce->check_idle());
    const SavedOptimizer own = saved();
    own.pack({common_hash(own), 0}, static_cast<std::byte*>(buffer));
    return {};
}

/// A hash of the state that all ranks share at this moment, and no other training has: all of its numbers, and its
/// parameters. Where ranks make steps alone, the parameters are those where they last met. Not 0.
std::uint64_t FusedOptimizer::common_hash(const SavedOptimizer& saved) const {
    std::uint64_t hash = saved.ranks;
    const auto add = [&hash](const void* data, std::size_t bytes) {
        const std::array<std::uint64_t, 2> pair = {hash, hash_bytes(data, bytes)};
        hash = hash_bytes(pair.data(), sizeof(pair));
    };
    add(&saved.identity, sizeof(saved.identity));
    add(saved.numbers.data(), saved.numbers.size() * sizeof(std::uint64_t));
    for (const Bucket& bucket : buckets_) {
        const ArrayName common = bucket.anchor.size() > 0 ? ArrayName::kAnchor : ArrayName::kParameters;
        const std::vector<float> values = piece_of(bucket, common, Chunk{0, 0, bucket.layout.count()});
        add(values.data(), values.size() * sizeof(float));
    }
    return hash != 0 ? hash : 1;
}

Status FusedOptimizer::unpack_state(const void* const* blobs, const std::uint64_t* bytes, std::size_t num_blobs) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    Allreduce& first = *buckets_.front().allreduce;
    SavedBlobs saved;
    ExpectedFile expected;
    const Status own = catch_exceptions([&] {
        expected = expected_file();
        return saved.open(blobs, bytes, num_blobs, expected);
    });
    ONEBIT_RETURN_IF_ERROR(
        first.agree_now(own, static_cast<std::uint32_t>(saved.saved_ranks()), saved.steps(),
                        {"how many ranks the blobs are of", "after how many steps they were packed"}));
    return unpack(saved, expected);
}

/// Called once all ranks know that their blobs are whole. Collective; blocks.
Status FusedOptimizer::unpack(SavedBlobs& saved, const ExpectedFile& expected) {
    Allreduce& first = *buckets_.front().allreduce;
    std::unique_ptr<BlockGather> heads;
    Status own = catch_exceptions([&] {
        if (!saved.needs_heads()) return Status();
        ONEBIT_RETURN_IF_ERROR(BlockGather::create(first, saved.head_sizes(expected), &heads));
        return saved.copy_own_head(heads->block(static_cast<std::size_t>(first.channel().rank())));
    });
    ONEBIT_RETURN_IF_ERROR(first.agree_now(own, 0, saved.identity_hash(),
                                           {"", "which state the blobs are of (a hash of what all have alike)"}));
    if (heads != nullptr) {
        if (const Status gathered = heads->run(); !gathered.ok()) return break_all(gathered);
    }
    LoadedOptimizer loaded;
    Room room;
    own = catch_exceptions([&] {
        const auto head_of = [&](std::size_t rank) -> std::span<const std::byte> { return heads->block(rank); };
        ONEBIT_RETURN_IF_ERROR(saved.assemble(expected, head_of, &loaded));
        heads.reset();
        ONEBIT_RETURN_IF_ERROR(check_loaded(loaded));
        return make_room_for(loaded, &room);
    });
    return take_over(own, loaded, std::move(room));
}

} // namespace onebit
