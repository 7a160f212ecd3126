// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/allreduce.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace onebit {

// ------------------------------------------------------------------------------------------------- operation ----

Status Allreduce::check_buffers(const void* input, const void* output) const {
    return preflight_->check_buffers({input, plan_.count}, {output, plan_.count});
}

void Allreduce::begin_call(const Status& own, const void* input, void* output) {
    const bool dense = plan_.algorithm == ONEBIT_ALGORITHM_DENSE;
    const bool if_all_apart = dense && plan_.checks_sums_on_the_way();
    const bool sum_tells = plan_.sum_tells();
    // The encoder doesn't look at elements that a mask leaves out.
    const bool tentative = if_all_apart || sum_tells || (plan_.tentative && !dense && !masked());
    preflight_->begin(own, {.input = input,
                            .count = plan_.count,
                            .output = output,
                            .output_count = plan_.count,
                            .tentative = tentative,
                            .if_all_apart = if_all_apart,
                            .apart = input != output,
                            .algorithm = plan_.algorithm,
                            .calls = calls_});
    values_.set(elements_, input, 0, output, 0, plan_.count);
    begin(plan_.algorithm, {.input = sum_tells && !own.ok() ? nullptr : input,
                            .output = output,
                            .source = values_.source(),
                            .sink = values_.sink(),
                            .number = calls_,
                            .sum_only = plan_.op == ONEBIT_OP_SUM,
                            .tentative = tentative,
                            .vote = tentative ? preflight_.get() : nullptr});
}

Status Allreduce::run_compressed(std::uint64_t number, const ValueSource& source) {
    begin(plan_.compressed_algorithm, {.source = &source, .number = number});
    return wait();
}

void Allreduce::start_tentative(std::uint64_t number, const ValueSource* source) {
    begin(plan_.compressed_algorithm, {.source = source, .number = number, .tentative = true});
}

void Allreduce::commit() {
    inner_flat().commit();
    ++calls_;
}

Status Allreduce::run_sum(float* values) {
    begin(ONEBIT_ALGORITHM_DENSE, {.input = values, .output = values, .sum_only = true});
    return wait();
}

void Allreduce::start_sum() {
    begin(direct_sum_->stages(), {});
}

// --------------------------------------------------------------------------------------------------- settings ----

Status Allreduce::make_mask(const std::uint32_t* words, Mask* mask) const {
    if (!compresses()) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "the handle was created dense: no mask");
    if (plan_.averages_factors()) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "ONEBIT_CODEC_POWERSGD has no mask: it says zero as it says all else");
    }
    if (words == nullptr) return {};
    mask->words = AlignedBuffer<std::uint32_t>(ceil_divide(plan_.count, kWordElements));
    std::copy_n(words, mask->words.size(), mask->words.data());
    if (const std::size_t rest = plan_.count % kWordElements; rest > 0) {
        mask->words[mask->words.size() - 1] &= (1U << rest) - 1;
    }
    if (sharded_ != nullptr) mask->of_shard = sharded_->shard_of(mask->words);
    if (&backend_->memory() != &host_memory()) {
        mask->placed = AlignedBuffer<std::uint32_t>(mask->words.size(), backend_->memory());
        mask->placed.copy_from(mask->words.data());
    }
    return {};
}

Status Allreduce::take_mask(Mask mask) {
    const std::uint64_t hash = mask.hash();
    if (hash == mask_hash_) return {}; // in force already, on every rank
    mask_hash_ = hash;
    return carry_out([&] {
        AlignedBuffer<std::uint32_t>& now = mask.placed.size() > 0 ? mask.placed : mask.words;
        if (sharded_ != nullptr) {
            sharded_->set_mask(std::move(now), std::move(mask.of_shard));
        } else {
            flat_->set_mask(std::move(now));
        }
        return Status();
    });
}

Status Allreduce::set_mask(const std::uint32_t* words, const Status& own_before) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    Mask mask;
    const Status own = catch_exceptions([&] { return own_before.ok() ? make_mask(words, &mask) : own_before; });
    ONEBIT_RETURN_IF_ERROR(agree_now(own, 0, mask.hash(), {"", "the mask (its hash)"}));
    return take_mask(std::move(mask));
}

ErrorState Allreduce::error_state() const {
    if (!compresses()) return {};
    if (power_sgd_ != nullptr) {
        return {
            &power_sgd_->error(), &power_sgd_->directions(), {0, 0, plan_.count}, {0, 0, plan_.matrices.right_count()}};
    }
    FlatAllreduce& flat = inner_flat();
    const Chunk worker = sharded_ == nullptr ? Chunk{0, 0, plan_.count} : sharded_->shard();
    Chunk server = flat.own_chunk();
    server.begin += worker.begin;
    ErrorState state = {&flat.worker(), &flat.server(), worker, server};
    if (sharded_ != nullptr) state.of_levels = sharded_->level_errors();
    return state;
}

std::array<Transport*, 2> Allreduce::other_channels() const {
    return {channels_.node.get(), channels_.across.get()};
}

void Allreduce::tell(const Communicator& communicator, const char* collective) const {
    Collective::tell(communicator, collective);
    for (std::size_t level = 0; levels_ != nullptr && level <= plan_.levels.lower.size(); ++level) {
        onebit_level_info_t info = ONEBIT_LEVEL_INFO_INIT;
        levels_->fill_info(level, &info);
        plan_.log.write(
            ONEBIT_LOG_INFO, "level %zu: %u ranks average %llu elements %s%s; rank 0 sends %llu bytes a call", level,
            info.ranks, static_cast<unsigned long long>(info.count), info.compressed == 0 ? "exactly" : "by ",
            info.compressed == 0 ? "" : name_of(info.codec), static_cast<unsigned long long>(info.bytes));
    }
}

Status Allreduce::find_level(std::size_t level, const LevelsAllreduce** levels) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    if (levels_ == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "the handle's algorithm is not ONEBIT_ALGORITHM_LEVELS: %s",
                             plan_.reason.c_str());
    }
    if (level > plan_.levels.lower.size()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "level: %zu, but the last one is %zu", level,
                             plan_.levels.lower.size());
    }
    *levels = levels_;
    return {};
}

void Allreduce::fill_info(onebit_allreduce_info_t* info) const {
    fill_common(info);
    info->dense_bytes = ring_bytes(plan_.count * elements_.bytes(), channel_->size());
    info->workspace_bytes += (flat_ == nullptr ? 0 : flat_->workspace_bytes()) +
                             (direct_sum_ == nullptr ? 0 : direct_sum_->workspace_bytes());
    const bool nccl_in_node = plan_.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && channels_.node != nullptr &&
                              channels_.node->is_stream_ordered() && !channel_->is_stream_ordered();
    const Algorithm* const algorithm = forms_[static_cast<std::size_t>(plan_.algorithm)].algorithm.get();
    std::snprintf(info->transport, sizeof(info->transport), "%s%s%s", nccl_in_node ? "nccl+" : "", channel_->name(),
                  algorithm == nullptr ? "" : algorithm->way());
}

} // namespace onebit
