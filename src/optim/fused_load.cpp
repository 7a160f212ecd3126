// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Loading first puts everything together beside the optimizer. Then all ranks agree, and only then anything changes.

#include <algorithm>

#include "collectives/operation/saved_files.hpp"
#include "core/file_lock.hpp"
#include "core/hash.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {
namespace {

/// A hash of the save's number and of its state's numbers.
std::uint64_t hash_of(const LoadedOptimizer& loaded) {
    return hash_bytes(loaded.numbers.data(), loaded.numbers.size() * sizeof(std::uint64_t)) ^ loaded.mark.save;
}

} // namespace

Status FusedOptimizer::load(const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    Allreduce& first = *buckets_.front().allreduce;
    LoadedOptimizer loaded;
    Room room;
    const Status own = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        if (first.channel().rank() == 0) ONEBIT_RETURN_IF_ERROR(FileLock::check_free(lock_name(prefix)));
        ONEBIT_RETURN_IF_ERROR(load_optimizer(prefix, expected_file(), &loaded));
        const Status fits = check_loaded(loaded);
        if (!fits.ok()) return Status::error(fits.code(), "%s: %s", shown(prefix).c_str(), fits.message().c_str());
        return make_room_for(loaded, &room);
    });
    ONEBIT_RETURN_IF_ERROR(take_over(own, loaded, std::move(room)));
    return tell_of_recovery(first, prefix, loaded.mark, loaded.places);
}

/// Called once each rank has prepared its load: loads on all ranks or on none. Collective; blocks.
Status FusedOptimizer::take_over(const Status& own, LoadedOptimizer& loaded, Room room) {
    Allreduce& first = *buckets_.front().allreduce;
    const Status agreed = first.agree_now(own, static_cast<std::uint32_t>(loaded.saved_ranks), hash_of(loaded),
                                          {"how many ranks the save is of", "which state was saved last (a hash)"});
    if (agreed.ok()) return restore(loaded, std::move(room));
    for (Bucket& bucket : buckets_) { // memory for sums that won't be needed
        if (bucket.compresses && frozen()) drop_sum(bucket);
    }
    return agreed;
}

/// A file like this optimizer's own, except that the history of norms may be that of another rule, and variances may or
/// may not have been followed.
ExpectedFile FusedOptimizer::expected_file() {
    const std::size_t history = freeze_rule_ != nullptr ? freeze_rule_->history().size() : 0;
    const std::size_t followed = follower_ != nullptr ? follower_->numbers().size() : 0;
    const std::size_t others = all_numbers().size() - history - followed;
    const Transport& channel = buckets_.front().allreduce->channel();
    return {identity(),
            frozen_as(),
            others,
            others + longest_freeze_history(settings_.groups.size(), 2 * tensors_.size()) + 1 + tensors_.size(),
            [this](SavedStage stage, std::uint32_t rank, std::uint32_t ranks, const Seat& seat) {
                return rows_of(stage, rank, ranks, seat);
            },
            channel.rank(),
            channel.size(),
            seats_};
}

/// Brings the loaded arrays to the buckets' memory, and allocates what the state needs besides.
Status FusedOptimizer::make_room_for(LoadedOptimizer& loaded, Room* room) {
    const auto place = [this](AlignedBuffer<float>& values) {
        if (&memory() == &host_memory()) return;
        AlignedBuffer<float> moved(values.size(), memory());
        moved.copy_from(values.data());
        values = std::move(moved);
    };
    constexpr ArrayName kPlaced[] = {ArrayName::kMomentum, ArrayName::kVariance, ArrayName::kPrecondition,
                                     ArrayName::kFreshVariance, ArrayName::kAnchor};
    for (auto& [key, values] : loaded.arrays) {
        if (std::ranges::find(kPlaced, key.first) != std::end(kPlaced)) place(values);
    }
    for (Bucket& bucket : buckets_) {
        const bool will_be_frozen = is_frozen(loaded.identity.stage);
        if (needs_sum(bucket, will_be_frozen)) {
            ONEBIT_RETURN_IF_ERROR(make_sum(bucket));
        } else if (will_be_frozen) {
            bucket.passes->make_room_for_momenta();
        }
    }
    room->masks.resize(buckets_.size());
    room->masked_gradients.resize(buckets_.size());
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
        if (!buckets_[b].compresses) continue;
        const auto found = loaded.arrays.find({ArrayName::kMask, b});
        const auto* const words =
            found == loaded.arrays.end() ? nullptr : reinterpret_cast<const std::uint32_t*>(found->second.data());
        ONEBIT_RETURN_IF_ERROR(buckets_[b].allreduce->make_mask(words, &room->masks[b]));
        if (words == nullptr) continue;
        room->masked_gradients[b] = take_masked(words, &loaded.arrays.at({ArrayName::kWorkerError, b}));
        place(room->masked_gradients[b]);
    }
    return {};
}

/// On the host nothing here needs memory: the load can't fail any more.
Status FusedOptimizer::restore(LoadedOptimizer& save, Room room) {
    (void)set_all_numbers(save.numbers); // as many as check_loaded has seen
    if (freeze_rule_ != nullptr) freeze_rule_->forget_wait();
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        const auto take = [&](ArrayName name) {
            const auto found = save.arrays.find({name, b});
            return found == save.arrays.end() ? AlignedBuffer<float>() : std::move(found->second);
        };
        bucket.m = take(ArrayName::kMomentum); // the next step reads it from here
        bucket.v = take(ArrayName::kVariance);
        bucket.precondition = take(ArrayName::kPrecondition);
        bucket.v_fresh = take(ArrayName::kFreshVariance);
        bucket.anchor = take(ArrayName::kAnchor);
        const AlignedBuffer<float> parameters = take(ArrayName::kParameters);
        bucket.passes->set_parameters(parameters.data());
        if (bucket.compresses && frozen()) drop_sum(bucket);
        if (!bucket.compresses) continue;
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->take_mask(std::move(room.masks[b])));
        bucket.masked_gradients = std::move(room.masked_gradients[b]);
        const AlignedBuffer<float> worker =
            take(seat().on_two_levels() ? ArrayName::kShardError : ArrayName::kWorkerError);
        const AlignedBuffer<float> server = take(ArrayName::kServerError);
        if (worker.size() == 0) {
            ONEBIT_RETURN_IF_ERROR(bucket.allreduce->reset());
        } else {
            Allreduce& allreduce = *bucket.allreduce;
            ONEBIT_RETURN_IF_ERROR(allreduce.set_state(worker.data() + allreduce.worker_part().begin,
                                                       server.data() + allreduce.server_chunk().begin, steps_));
        }
    }
    if (follower_ != nullptr) {
        follower_->loaded(frozen(), steps_);
        if (frozen()) follower_->look_at(buckets_);
    }
    told_of_growth_ = false;
    std::ranges::fill(set_hashes_, 0);
    set_hash_ = 0;
    loaded();
    if (frozen()) look_at_shared_scales();
    return {};
}

} // namespace onebit
