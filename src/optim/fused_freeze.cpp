// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// FusedOptimizer between its stages: the end of a warm-up, the change over to the compression stage, the following of
// frozen variances there, and the return to the warm-up.

#include <algorithm>
#include <span>
#include <utility>

#include "numeric/mean.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {

// ---------------------------------------------------------------------------------------------------- freeze ----

/// Whether the step just made was the warm-up's last.
bool FusedOptimizer::warmup_ends() {
    if (!settings_.freezes() || frozen() || freeze_requested_) return false;
    if (freeze_rule_ == nullptr) { // later than configured only after a thaw, or a load of more steps
        const bool after_call = freezes_again_ != 0 && config().freeze_step == ONEBIT_FREEZE_NEVER;
        return steps_ >= std::max(after_call ? 0 : config().freeze_step, least_freeze_step_);
    }
    bool ends = false;
    if (freeze_rule_->looks_at(steps_)) {
        look_at_norms();
        ends = freeze_rule_->observe(steps_, rates_, quantities_) && steps_ >= least_freeze_step_;
    }
    if (ends || freeze_rule_->is_overdue(steps_)) log_rule(ends);
    return ends;
}

/// Takes the quantities that the rule sees of the step just made. A GPU's v is copied to the host for this.
void FusedOptimizer::look_at_norms() {
    rates_.clear();
    quantities_.clear();
    for (const onebit_param_group_t& group : settings_.groups) rates_.push_back(group.lr);
    for (const Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        add_variances(bucket);
        add_freeze_quantities(bucket, &quantities_);
    }
}

/// Added up in order: the same on every rank and with any number of threads.
void FusedOptimizer::add_variances(const Bucket& bucket) {
    const std::size_t first_quantity = quantities_.size();
    for (const Tensor* tensor : bucket.layout.tensors()) {
        const AdamUpdate update = update_of(group_of(*tensor), true, steps_, exact_rounds_);
        quantities_.push_back({.tensor = tensor->number, .correction = double{update.correct_v}});
    }
    read_by_tensor(bucket, bucket.v, [&](std::size_t i, std::span<const float> part) {
        for (const float v : part) quantities_[first_quantity + i].norm += v;
    });
}

/// Logs the freeze, or what it waits for: a training that never compresses looks like any other.
void FusedOptimizer::log_rule(bool ends) const {
    const auto steps = static_cast<unsigned long long>(steps_);
    if (ends) {
        log_.write(ONEBIT_LOG_INFO, "the variance has settled: it is frozen after step %llu", steps);
        return;
    }
    constexpr const char* kStillExact = "step %llu is still exact: the freeze waits for %s";
    const FreezeWait& wait = freeze_rule_->wait();
    switch (wait.what) {
        case ONEBIT_FREEZE_WAIT_NONE:
        case ONEBIT_FREEZE_WAIT_STEPS:
            log_.write(ONEBIT_LOG_INFO, kStillExact, steps, "the first step that it may follow");
            break;
        case ONEBIT_FREEZE_WAIT_LR:
            log_.write(ONEBIT_LOG_INFO, kStillExact, steps, "the learning rates to stop rising");
            break;
        case ONEBIT_FREEZE_WAIT_VARIANCE:
        case ONEBIT_FREEZE_WAIT_PARAMETERS:
            log_.write(
                ONEBIT_LOG_INFO,
                "step %llu is still exact: the freeze waits for the %s of %s, now %.3g times what it was a window ago, "
                "to stay within %.3g to %.3g times",
                steps, wait.what == ONEBIT_FREEZE_WAIT_VARIANCE ? "variance" : "squared norm",
                config().freeze_step == ONEBIT_FREEZE_PAPER ? "all tensors" : tensors_[wait.tensor].name.c_str(),
                wait.ratio, freeze_rule_->band(), 1 / freeze_rule_->band());
            break;
    }
}

/// From the warm-up to what comes after it. Collective; blocks.
Status FusedOptimizer::change_over() {
    for (Bucket& bucket : buckets_) {
        if (bucket.compresses) ONEBIT_RETURN_IF_ERROR(mask_zero_variance(bucket));
    }
    const Status prepared = catch_exceptions([&] {
        for (Bucket& bucket : buckets_) {
            if (!bucket.compresses) continue;
            ONEBIT_RETURN_IF_ERROR(prepare_freeze(bucket));
            make_room_for_masked(bucket);
        }
        return Status();
    });
    const Status all_prepared = buckets_.front().allreduce->agree_now(prepared);
    if (!all_prepared.ok()) {
        for (Bucket& bucket : buckets_) {
            drop_preparations(bucket);
            bucket.masked_gradients = {};
        }
        return buckets_.front().allreduce->broken().ok() ? all_prepared : break_all(all_prepared);
    }
    const Status agreed = buckets_.front().allreduce->agree_now(catch_exceptions([&] { return freeze_all(); }));
    if (!agreed.ok()) return break_all(agreed); // half of the state is of another stage
    freeze_step_ = steps_;
    freeze_requested_ = false;
    bytes_sent_at_freeze_ = bytes_sent();
    log_freeze();
    return {};
}

Status FusedOptimizer::freeze_all() {
    for (Bucket& bucket : buckets_) {
        if (bucket.compresses) ONEBIT_RETURN_IF_ERROR(freeze_bucket(bucket));
    }
    look_at_shared_scales();
    if (follower_ == nullptr) return {};
    follower_->restart(steps_);
    follower_->look_at(buckets_);
    told_of_growth_ = false;
    return {};
}

void FusedOptimizer::look_at_shared_scales() {
    if (shared_scales_ == nullptr) return;
    shared_scales_->look_at(buckets_, [this](const Tensor& tensor) { return message_scale(tensor); });
}

/// Warns where the coming steps will be too large.
void FusedOptimizer::log_freeze() const {
    constexpr double kTolerated = 10;
    if (shared_scales_ == nullptr || shared_scales_->step_ratio() < kTolerated) return;
    log_.write(ONEBIT_LOG_WARNING,
               "frozen after step %llu: compressed momenta take an element of %s %.3g times as far per step as "
               "suits its variance, which is far below its neighbours'; compress updates",
               static_cast<unsigned long long>(freeze_step_), tensors_[shared_scales_->tensor()].name.c_str(),
               shared_scales_->step_ratio());
}

Status FusedOptimizer::mask_zero_variance(Bucket& bucket, const Status& prepared) {
    AlignedBuffer<std::uint32_t> mask;
    bool any = false;
    const Status own = catch_exceptions([&] {
        mask = AlignedBuffer<std::uint32_t>(ceil_divide(bucket.v.size(), kWordElements));
        bucket.passes->read(bucket.v, [&](std::size_t first, std::span<const float> v) {
            for (std::size_t i = first; i < first + v.size(); ++i) {
                const std::uint32_t bit = v[i - first] > 0 ? 1 : 0;
                mask[i / kWordElements] |= bit << (i % kWordElements);
                any = any || bit == 0;
            }
        });
        if (!any) return Status();
        bucket.passes->edit(bucket.m, [&](std::size_t first, std::span<float> m) {
            for (std::size_t i = first; i < first + m.size(); ++i) { // where v has underflowed, m may be left over
                if (!takes_part(mask.view(), i)) m[i - first] = 0;
            }
        });
        return Status();
    });
    return bucket.allreduce->set_mask(any ? mask.data() : nullptr, prepared.ok() ? own : prepared);
}

Status FusedOptimizer::freeze() {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    if (!settings_.freezes()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "Adam and LAMB don't freeze: no compression stage");
    }
    if (frozen() || freeze_requested_) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "already frozen, after step %llu",
                             static_cast<unsigned long long>(frozen() ? freeze_step_ : steps_));
    }
    if (steps_ == 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "no step yet: there is no variance to freeze");
    }
    request_freeze();
    return {};
}

/// Counts the masked elements now, for the caller to see. The next step changes over.
void FusedOptimizer::request_freeze() {
    std::uint64_t masked = 0;
    for (const Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        bucket.passes->read(bucket.v, [&](std::size_t, std::span<const float> v) {
            masked += static_cast<std::uint64_t>(std::ranges::count(v, 0.0F));
        });
    }
    masked_ = masked;
    freeze_requested_ = true;
}

// ------------------------------------------------------------------------------------------ after the freeze ----

bool FusedOptimizer::measures_now() const {
    return follower_ != nullptr && frozen() && follower_->measures_in(t());
}

Status FusedOptimizer::measure_variances() {
    return follower_->measure(buckets_, [this](const Tensor& tensor) { return own_factor(tensor); });
}

/// After a step that has measured variances. Where they have outgrown the frozen ones, collective; blocks.
Status FusedOptimizer::follow_variances() {
    follower_->take(buckets_, steps_);
    const std::size_t tensor = follower_->most_grown();
    if (follower_->growth(tensor) <= config().thaw_ratio) return {};
    if (follows()) return thaw();
    if (!told_of_growth_) {
        log_growth(ONEBIT_LOG_WARNING, "steps are too large by the root of that; freeze later, or compress updates");
    }
    told_of_growth_ = true;
    return {};
}

/// Back to the warm-up, because a tensor's variance has outgrown the frozen one: v goes on from the followed variance
/// until v is frozen again. Errors of the exchange are dropped. If a rank has no memory for it, all ranks stay in the
/// compression stage.
Status FusedOptimizer::thaw() {
    std::vector<AlignedBuffer<float>> momenta;
    const Status own = catch_exceptions([&] { return prepare_thaw(&momenta); });
    const Status prepared = buckets_.front().allreduce->agree_now(own);
    if (!prepared.ok()) {
        for (Bucket& bucket : buckets_) {
            if (bucket.compresses) drop_sum(bucket);
        }
        return buckets_.front().allreduce->broken();
    }
    log_growth(ONEBIT_LOG_INFO, "steps are exact until it has settled again");
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        if (momenta[b].size() > 0) buckets_[b].m = std::move(momenta[b]);
    }
    ONEBIT_RETURN_IF_ERROR(thaw_all());
    compressed_bytes_sent_ += bytes_sent() - bytes_sent_at_freeze_;
    freeze_step_ = masked_ = 0;
    ++thaws_;
    freezes_again_ = freeze_rule_ == nullptr ? 1 : 0;
    least_freeze_step_ = steps_ + steps_remembered(greatest_beta2_);
    if (freeze_rule_ != nullptr) freeze_rule_->forget();
    thawed();
    return {};
}

/// Memory, and by bucket the momenta that are messages.
Status FusedOptimizer::prepare_thaw(std::vector<AlignedBuffer<float>>* momenta) {
    momenta->resize(buckets_.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        if (!bucket.compresses) continue;
        ONEBIT_RETURN_IF_ERROR(make_sum(bucket));
        ONEBIT_RETURN_IF_ERROR(prepare_meeting(bucket));
        if (bucket.m.size() > 0) continue;
        (*momenta)[b] = AlignedBuffer<float>(bucket.layout.count(), memory());
        bucket.allreduce->delivery().last_result(ArraySink((*momenta)[b].data()));
    }
    return {};
}

Status FusedOptimizer::thaw_all() {
    set_updates(exact_rounds_);
    for (Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        ONEBIT_RETURN_IF_ERROR(meet(bucket));
        bucket.v = std::move(bucket.precondition);
        bucket.passes->thaw([this](const Tensor& tensor) { return nearest_finite(follower_->ratio(tensor.number)); });
        bucket.anchor = {};
        bucket.masked_gradients = {};
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->reset());
    }
    return check_passes();
}

void FusedOptimizer::log_growth(onebit_log_level_t level, const char* consequence) const {
    const std::size_t tensor = follower_->most_grown();
    log_.write(level, "step %llu: since the freeze after step %llu the variance of %s is %.3g times as large: %s",
               static_cast<unsigned long long>(steps_), static_cast<unsigned long long>(freeze_step_),
               tensors_[tensor].name.c_str(), follower_->ratio(tensor), consequence);
}

} // namespace onebit
