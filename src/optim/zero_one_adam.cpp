// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/zero_one_adam.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <span>
#include <vector>

#include "numeric/mean.hpp"

namespace onebit {

ZeroOneAdam::ZeroOneAdam(Settings settings, std::vector<Tensor> tensors)
    : FusedOptimizer(std::move(settings), std::move(tensors)), lr_sum_(groups().size()), decay_(groups().size()) {}

Status ZeroOneAdam::create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                           std::unique_ptr<Optimizer>* optimizer) {
    std::unique_ptr<ZeroOneAdam> made(new ZeroOneAdam(std::move(settings), std::move(tensors)));
    ONEBIT_RETURN_IF_ERROR(made->prepare(communicator, false));
    *optimizer = std::move(made);
    return {};
}

// ---------------------------------------------------------------------------------------------------- schedule ----

Round ZeroOneAdam::next_round() const {
    if (frozen()) return local_round();
    return t() % schedule_.exact_interval == 0 ? Round::kExact : Round::kCompressed;
}

void ZeroOneAdam::finish_step(Round round) {
    if (frozen() && round == Round::kCompressed) { // the ranks have met
        std::ranges::fill(lr_sum_, 0);
        std::ranges::fill(decay_, 0);
    }
    move_on_schedule(round);
    if (frozen()) return;
    // Now, so that the next round's exchange may begin early.
    mask_is_old_ = round == Round::kExact; // a compressed round has made sure of the mask
    if (!mask_is_old_ || (t() + 1) % schedule_.exact_interval == 0) return;
    for (Bucket& bucket : buckets()) {
        if (bucket.compresses && !look_at_variance(bucket).ok()) return; // on every rank: before_exchange tries again
    }
    mask_is_old_ = false;
}

void ZeroOneAdam::move_on_schedule(Round round) {
    ZeroOneSchedule& s = schedule_;
    if (frozen()) {
        if (++s.steps_of_interval < config().local_step_scaler) return;
        s.steps_of_interval = 0;
        s.local_interval = std::min(2 * s.local_interval, config().local_steps);
    } else if (round == Round::kExact) {
        ++s.exact_rounds;
        if (stays_exact() || ++s.rounds_of_interval < config().variance_updates) return;
        s.rounds_of_interval = 0;
        s.exact_interval *= 2;
    }
}

void ZeroOneAdam::loaded() {
    mask_is_old_ = true;
    weighs_ = exchanges_updates() ? 1 : 0;
    if (frozen() || !stays_exact()) return;
    schedule_.exact_interval = 1; // the saved one may have had another rule
    schedule_.rounds_of_interval = 0;
}

/// v has been updated in each of the steps, and its intervals begin again.
void ZeroOneAdam::steps_set() {
    schedule_ = {.exact_rounds = exact_rounds()};
    mask_is_old_ = true;
}

void ZeroOneAdam::visit_numbers(NumberVisitor& visitor) {
    for (std::uint64_t* number : {&schedule_.exact_interval, &schedule_.exact_rounds, &schedule_.rounds_of_interval,
                                  &schedule_.local_interval, &schedule_.steps_of_interval}) {
        visitor.visit(*number);
    }
    visitor.visit(weighs_);
    visitor.visit(lr_sum_);
    visitor.visit(decay_);
}

Status ZeroOneAdam::check_numbers() const {
    const ZeroOneSchedule& s = schedule_;
    // Only an exact round in a step that the interval divides doubles the interval.
    ONEBIT_RETURN_IF_ERROR(check_state(std::has_single_bit(s.exact_interval), "exact interval", s.exact_interval));
    ONEBIT_RETURN_IF_ERROR(
        check_state(s.exact_interval <= std::max<std::uint64_t>(2 * steps(), 1), "exact interval", s.exact_interval));
    ONEBIT_RETURN_IF_ERROR(check_state(s.exact_rounds == exact_rounds(), "exact rounds", s.exact_rounds));
    ONEBIT_RETURN_IF_ERROR(
        check_state(s.rounds_of_interval <= s.exact_rounds, "rounds of the interval", s.rounds_of_interval));
    const std::uint64_t local_steps = frozen() ? steps() - freeze_step() : 0; // each at most doubles the interval
    const std::uint64_t most = std::uint64_t{1} << std::min<std::uint64_t>(local_steps, 48);
    ONEBIT_RETURN_IF_ERROR(
        check_state(s.local_interval >= 1 && s.local_interval <= most, "local interval", s.local_interval));
    ONEBIT_RETURN_IF_ERROR(
        check_state(s.steps_of_interval <= local_steps, "steps of the interval", s.steps_of_interval));
    ONEBIT_RETURN_IF_ERROR(check_state(weighs_ <= 1, "unit of errors", weighs_));
    if (has_compressed() && (weighs_ == 1) != exchanges_updates()) {
        return Status::error(ONEBIT_ERROR_BAD_STATE,
                             "the saved training compresses %s, this one %s (config.compressed)",
                             weighs_ == 1 ? "updates" : "momenta", weighs_ == 1 ? "momenta" : "updates");
    }
    for (const std::vector<double>* sums : {&lr_sum_, &decay_}) {
        for (const double sum : *sums) {
            const bool possible = frozen() ? sum >= 0 && std::isfinite(sum) : sum == 0;
            ONEBIT_RETURN_IF_ERROR(check_state(possible, "sum of learning rates or decays", sum));
        }
    }
    for (const double sum : lr_sum_) { // what a message is divided by
        const bool possible = sum == 0 || std::isfinite(static_cast<float>(1 / sum));
        ONEBIT_RETURN_IF_ERROR(check_state(possible, "sum of learning rates", sum));
    }
    return {};
}

// ------------------------------------------------------------------------------------------ compressed rounds ----

/// Before the freeze the gradients. After the freeze the changes of the parameters by this rank's steps, including the
/// present step.
std::unique_ptr<ValueSource> ZeroOneAdam::make_source(Bucket& bucket) {
    return bucket.passes->make_round_source([this](const Tensor& tensor) { return own_factor(tensor); });
}

Status ZeroOneAdam::before_exchange(Bucket& bucket) {
    if (!frozen()) return mask_is_old_ ? look_at_variance(bucket) : Status();
    set_updates(exact_rounds()); // for the step that each rank makes alone
    return {};
}

/// For compressed rounds before the freeze, until v changes: masks where v is zero, and makes v's preconditioner.
Status ZeroOneAdam::look_at_variance(Bucket& bucket) {
    if (!exchanges_updates()) return mask_zero_variance(bucket);
    const Status room = catch_exceptions([&] {
        if (bucket.precondition.size() == 0) {
            bucket.precondition = AlignedBuffer<float>(bucket.layout.count(), memory());
        }
        return Status();
    });
    ONEBIT_RETURN_IF_ERROR(mask_zero_variance(bucket, room));
    memory().copy(bucket.precondition.data(), bucket.v.data(), bucket.v.bytes());
    invert_variance(bucket, schedule_.exact_rounds);
    return {};
}

void ZeroOneAdam::update_compressed(Bucket& bucket) {
    if (frozen()) {
        rejoin(bucket);
    } else { // leaves v unchanged
        set_updates(schedule_.exact_rounds);
        bucket.passes->take_average();
    }
}

// --------------------------------------------------------------------------------------- A: before the freeze ----

void ZeroOneAdam::update_exactly(Bucket& bucket) {
    update_with_adam(bucket, bucket.compresses ? schedule_.exact_rounds + 1 : t());
}

// ------------------------------------------------------------------------------------------------ the freeze ----

Status ZeroOneAdam::prepare_freeze(Bucket& bucket) {
    if (bucket.passes->keeps_sum()) bucket.anchor = AlignedBuffer<float>(bucket.layout.count(), memory());
    return {};
}

Status ZeroOneAdam::freeze_bucket(Bucket& bucket) {
    freeze_variance(bucket); // 0 keeps masked elements in their places, whatever their gradients
    if (!bucket.passes->keeps_sum()) bucket.anchor = take_sum(bucket);
    bucket.passes->copy_parameters(bucket.anchor);
    drop_sum(bucket);
    return bucket.allreduce->reset();
}

Status ZeroOneAdam::prepare_meeting(Bucket& bucket) {
    met_.resize(std::max(met_.size(), bucket.layout.count()));
    return {};
}

/// The ranks meet at the exact mean of their parameters and momenta. Weight decay that waits for a round is applied.
Status ZeroOneAdam::meet(Bucket& bucket) {
    const auto share = static_cast<float>(1.0 / bucket.allreduce->channel().size());
    const auto take_share = [&](std::size_t, std::span<float> part) { // before the sum, which then can't overflow
        for (float& value : part) value *= share;
    };
    bucket.passes->copy_parameters(bucket.sum);
    bucket.passes->edit(bucket.sum, take_share);
    ONEBIT_RETURN_IF_ERROR(sum_over_ranks(bucket));
    memory().copy(met_.data(), bucket.sum.data(), bucket.sum.bytes());
    auto next = met_.begin();
    read_by_tensor(bucket, bucket.anchor, [&](std::size_t i, std::span<const float> part) {
        const float decay = nearest_finite(decay_[bucket.layout.tensors()[i]->group]);
        for (const float anchor : part) {
            *next = nearest_finite(*next - decay * anchor);
            ++next;
        }
    });
    bucket.passes->set_parameters(met_.data());
    memory().copy(bucket.sum.data(), bucket.m.data(), bucket.m.bytes());
    bucket.passes->edit(bucket.sum, take_share);
    ONEBIT_RETURN_IF_ERROR(sum_over_ranks(bucket));
    memory().copy(bucket.m.data(), bucket.sum.data(), bucket.m.bytes());
    return {};
}

/// All begins again, except the count of updates of v.
void ZeroOneAdam::thawed() {
    schedule_ = {.exact_rounds = schedule_.exact_rounds};
    mask_is_old_ = true;
    std::ranges::fill(lr_sum_, 0);
    std::ranges::fill(decay_, 0);
    met_ = {};
}

// ---------------------------------------------------------------------------------------- B: after the freeze ----

/// What a step after the freeze adds to L and to the decay.
void ZeroOneAdam::begin_updates(Round) {
    if (!frozen()) return;
    for (std::size_t g = 0; g < groups().size(); ++g) {
        const AdamUpdate update = update_of(groups()[g], config().bias_correction != 0, t(), 0);
        lr_sum_[g] += static_cast<double>(update.lr) * update.correct_m;
        decay_[g] += groups()[g].lr * groups()[g].weight_decay;
    }
}

/// Adam with this rank's own gradients; weight decay waits for the round.
void ZeroOneAdam::update_locally(Bucket& bucket) {
    set_updates(exact_rounds());
    bucket.passes->step_alone([this](const Tensor& tensor) { return own_factor(tensor); });
}

/// The ranks meet at the average of the changes that each has made since the last round, including the present step.
/// Where no learning rate turns the average into a momentum, m is updated as in a step alone.
void ZeroOneAdam::rejoin(Bucket& bucket) {
    const auto stood_still = [this](const Tensor* tensor) { return lr_sum_[tensor->group] <= 0; };
    if (std::ranges::any_of(bucket.layout.tensors(), stood_still)) {
        bucket.passes->move_momenta([this](const Tensor& tensor) { return own_factor(tensor); });
    }
    const auto to_momentum = [this](const Tensor& tensor) {
        const double lr_sum = lr_sum_[tensor.group];
        return lr_sum > 0 ? static_cast<float>(-std::max(1 / lr_sum, double{FLT_MIN})) : 0.0F;
    };
    bucket.passes->rejoin(to_momentum, [this](const Tensor& tensor) { return nearest_finite(decay_[tensor.group]); });
}

} // namespace onebit
