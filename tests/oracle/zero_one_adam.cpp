// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// 0/1 Adam and its schedule.
#include <algorithm>

#include "oracle/optimizers.hpp"

namespace oracle {

Schedule::Schedule(std::uint64_t variance_updates, std::uint64_t local_step_scaler, std::uint64_t local_steps)
    : variance_updates_(variance_updates), scaler_(local_step_scaler), longest_(local_steps) {}

std::uint64_t Schedule::local_interval() const {
    std::uint64_t interval = 1;
    for (std::uint64_t doublings = (steps_ - frozen_at_) / scaler_; doublings != 0 && interval < longest_; --doublings)
        interval *= 2;
    return std::min(interval, longest_);
}

Schedule::Round Schedule::next() const {
    const std::uint64_t t = steps_ + 1;
    if (frozen_at_ != 0) return t % local_interval() == 0 ? Round::compressed : Round::local;
    return t % exact_interval_ == 0 ? Round::exact : Round::compressed;
}

void Schedule::advance() {
    const Round round = next();
    ++steps_;
    if (round == Round::compressed) ++compressed;
    if (round == Round::local) ++local;
    if (round != Round::exact) return;
    ++exact;
    if (++exact_in_interval_ < variance_updates_) return;
    exact_in_interval_ = 0;
    exact_interval_ *= 2;
}

ZeroOneAdam::ZeroOneAdam(const Model& model_in, const Vector& parameters)
    : FreezingOptimizer(model_in, parameters),
      schedule(model_in.variance_updates, model_in.local_step_scaler, model_in.local_steps),
      lr_sum(model_in.groups.size(), 0.0),
      decay(model_in.groups.size(), 0.0) {}

const Vector& ZeroOneAdam::parameters_of(std::size_t rank) const {
    return frozen() ? local_x[rank] : x;
}

// The gradients in the units that are exchanged.
PerRank ZeroOneAdam::weighted_of(PerRank gradients) const {
    for (Vector& each : gradients)
        for (const Slice& slice : slices(true))
            for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) each[i] = weighted(slice, i, each[i]);
    return gradients;
}

void ZeroOneAdam::warm_up(const PerRank& gradients, const Vector& average) {
    const bool exact = schedule.next() == Schedule::Round::exact;
    schedule.advance();
    exact_rounds = schedule.exact;
    if (!exact) mask_where_v_is_zero();
    Vector g = exact ? average : exchange(weighted_of(gradients));
    for (const Slice& slice : slices(true)) {
        for (std::uint64_t i = slice.range.begin; !exact && model.exchange_updates && i < slice.range.end(); ++i)
            g[i] *= denominator(slice, v[i], schedule.exact);
        const double beta1 = settings(slice).beta1;
        if (exact) update_moments(slice, g);
        for (std::uint64_t i = slice.range.begin; !exact && i < slice.range.end(); ++i)
            m[i] = beta1 * m[i] + (1 - beta1) * g[i];
        adam_update(slice, schedule.exact);
    }
}

void ZeroOneAdam::after_freeze() {
    schedule.freeze();
    weigh_momentum();
    reduce.reset();
    local_x.assign(static_cast<std::size_t>(model.ranks), x);
    local_m.assign(static_cast<std::size_t>(model.ranks), m);
    anchor = x;
}

void ZeroOneAdam::after_admission(std::uint64_t element) {
    for (Vector& each : local_m) each[element] = m[element];
}

// All ranks meet at their mean; the weight decay that is due is applied.
void ZeroOneAdam::meet() {
    x = mean_of(local_x);
    m = mean_of(local_m);
    for (const Slice& slice : slices(true))
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) x[i] -= decay[slice.group] * anchor[i];
    lr_sum.assign(lr_sum.size(), 0.0);
    decay.assign(decay.size(), 0.0);
    schedule.thaw();
}

void ZeroOneAdam::compressed(const PerRank& gradients) {
    const bool is_round = schedule.next() == Schedule::Round::compressed;
    schedule.advance();
    local_step(gradients);
    if (is_round) round();
    for (const Slice& slice : slices(false))
        for (Vector& each : local_x)
            for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) each[i] = x[i];
}

void ZeroOneAdam::local_step(const PerRank& gradients) {
    for (std::size_t k = 0; k < model.groups.size(); ++k) {
        lr_sum[k] += model.groups[k].lr * correction(model.groups[k].beta1, steps);
        decay[k] += model.groups[k].lr * model.groups[k].weight_decay;
    }
    const Vector d = denominators();
    for (const Slice& slice : slices(true)) {
        const Settings& s = settings(slice);
        const double a = correction(s.beta1, steps);
        for (std::size_t r = 0; r < local_x.size(); ++r) {
            for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
                if (!takes_part(i)) continue;
                double& momentum = local_m[r][i];
                momentum = s.beta1 * momentum + (1 - s.beta1) * weighted(slice, i, gradients[r][i]);
                local_x[r][i] -= s.lr * a * momentum / (model.exchange_updates ? 1 : d[i]);
            }
        }
    }
}

Vector ZeroOneAdam::denominators() const {
    Vector d(x.size(), 0.0);
    for (const Slice& slice : slices(true))
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
            d[i] = denominator(slice, v[i], schedule.exact);
    return d;
}

void ZeroOneAdam::round() {
    PerRank way = local_x;
    const Vector d = model.exchange_updates ? Vector(x.size(), 1.0) : denominators(); // the unit of exchanged values
    for (Vector& each : way)
        for (std::size_t i = 0; i < each.size(); ++i) each[i] = (each[i] - anchor[i]) * d[i];
    const Vector average = exchange(way);
    for (const Slice& slice : slices(true)) {
        const double sum = lr_sum[slice.group], due = decay[slice.group];
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
            anchor[i] += average[i] / d[i] - due * anchor[i];
            x[i] = anchor[i];
            for (Vector& each : local_x) each[i] = anchor[i];
            for (Vector& each : local_m)
                if (sum > 0) each[i] = -average[i] / sum;
        }
    }
    lr_sum.assign(lr_sum.size(), 0.0);
    decay.assign(decay.size(), 0.0);
}

} // namespace oracle
