// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// LAMB and 1-bit LAMB.
#include <algorithm>
#include <cmath>

#include "oracle/optimizers.hpp"

namespace oracle {

double Optimizer::lamb_update(const Slice& slice, std::uint64_t v_updates) {
    const Settings& s = settings(slice);
    Vector u = part_of(adam_direction(slice, v_updates), slice.range);
    for (std::uint64_t k = 0; k < u.size(); ++k) u[k] += s.weight_decay * x[slice.range.begin + k];
    const double x_norm = norm_of(part_of(x, slice.range)), u_norm = norm_of(u);
    const double c = x_norm == 0 || u_norm == 0 ? 1 : std::clamp(x_norm / u_norm, model.min_trust, model.max_trust);
    for (std::uint64_t k = 0; k < u.size(); ++k) x[slice.range.begin + k] -= s.lr * c * u[k];
    return c;
}

void Lamb::dense_update(const Slice& slice, const Vector& average) {
    trust.resize(model.tensors.size());
    update_moments(slice, average);
    trust[slice.tensor] = lamb_update(slice, steps);
}

void Lamb::update(const PerRank&, const Vector& average) {
    for (const Slice& slice : slices(true)) dense_update(slice, average);
}

void CodedLamb::dense_update(const Slice& slice, const Vector& average) {
    update_moments(slice, average);
    lamb_update(slice, steps);
}

OnebitLamb::OnebitLamb(const Model& model_in, const Vector& parameters)
    : FreezingOptimizer(model_in, parameters),
      trust_sum(model_in.tensors.size(), 0.0),
      momentum_factor(model_in.tensors.size(), 1.0),
      ratio(model_in.tensors.size(), 1.0),
      trust_steps(model_in.tensors.size(), 0) {}

double OnebitLamb::trust_average(std::size_t tensor) const {
    if (trust_steps[tensor] == 0) return 1;
    return trust_sum[tensor] / (1 - std::pow(model.trust_beta, static_cast<double>(trust_steps[tensor])));
}

void OnebitLamb::dense_update(const Slice& slice, const Vector& average) {
    update_moments(slice, average);
    const double c = lamb_update(slice, updates_of(slice));
    if (c == 1) return;
    double& sum = trust_sum[slice.tensor];
    sum = model.trust_beta * sum + (1 - model.trust_beta) * c;
    ++trust_steps[slice.tensor];
}

void OnebitLamb::after_freeze() {
    weigh_momentum();
    if (model.exchange_updates) return;
    v_fresh = v;
    if (!model.momentum_scaling) return;
    double mean = 0;
    Vector magnitude(model.tensors.size(), 0.0);
    for (const Slice& slice : slices(true)) {
        const double s = norm_of(part_of(m, slice.range)) / std::sqrt(static_cast<double>(slice.range.count));
        magnitude[slice.tensor] = s;
        mean += s / static_cast<double>(slices(true).size());
    }
    for (const Slice& slice : slices(true)) {
        const double s = magnitude[slice.tensor];
        momentum_factor[slice.tensor] = s == 0 ? 1 : mean / s;
    }
}

void OnebitLamb::compressed(const PerRank& gradients) {
    const Vector before = m;
    PerRank momentum = means_of_nodes(gradients);
    for (Vector& each : momentum) {
        for (const Slice& slice : slices(true)) {
            const double beta1 = settings(slice).beta1, k = momentum_factor[slice.tensor];
            for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
                each[i] = k * (beta1 * m[i] + (1 - beta1) * weighted(slice, i, each[i]));
        }
    }
    const Vector average = exchange(momentum);
    for (const Slice& slice : slices(true)) {
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
            m[i] = average[i] / momentum_factor[slice.tensor];
        if (model.exchange_updates) {
            exchanged_update(slice);
        } else {
            frozen_update(slice, before);
        }
    }
}

void OnebitLamb::exchanged_update(const Slice& slice) {
    const Settings& s = settings(slice);
    const double step = s.lr * trust_average(slice.tensor);
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
        x[i] -= step * (correction(s.beta1, steps) * m[i] + s.weight_decay * x[i]);
}

void OnebitLamb::frozen_update(const Slice& slice, const Vector& momentum_before) {
    const Settings& s = settings(slice);
    double largest = 0; // D / D_fresh
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
        const double g = (m[i] - s.beta1 * momentum_before[i]) / (1 - s.beta1);
        v_fresh[i] = s.beta2 * v_fresh[i] + (1 - s.beta2) * g * g;
        const double d = denominator(slice, v[i], freeze_step), d_fresh = denominator(slice, v_fresh[i], steps);
        largest = std::max(largest, d / d_fresh);
    }
    const Vector u0 = part_of(adam_direction(slice, freeze_step), slice.range);
    Vector u = u0;
    for (std::uint64_t k = 0; k < u.size(); ++k) u[k] += s.weight_decay * x[slice.range.begin + k];
    const double u_norm = norm_of(u);
    const double rho = s.weight_decay > 0 && u_norm > 0 ? std::min(1.0, norm_of(u0) / u_norm) : 1;
    double& r = ratio[slice.tensor];
    const double wanted = std::clamp(rho * largest + 1 - rho, 0.5, 4.0);
    r = std::clamp(wanted, r * 0.9, r * 1.1);
    for (std::uint64_t k = 0; k < u.size(); ++k)
        x[slice.range.begin + k] -= s.lr * trust_average(slice.tensor) * r * u[k];
}

} // namespace oracle
