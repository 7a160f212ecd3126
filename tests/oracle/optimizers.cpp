// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The common part of the optimizers, Adam, and 1-bit Adam.
#include "oracle/optimizers.hpp"

#include <algorithm>
#include <cmath>

namespace oracle {

double norm_of(const Vector& values) {
    double sum = 0;
    for (double value : values) sum += value * value;
    return std::sqrt(sum);
}

Vector mean_of(const PerRank& values) {
    Vector mean(values.front().size(), 0.0);
    for (const Vector& each : values)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += each[i];
    for (double& value : mean) value /= static_cast<double>(values.size());
    return mean;
}

Optimizer::Optimizer(const Model& model_in, const Vector& parameters)
    : model(model_in), x(parameters), m(parameters.size(), 0.0), v(parameters.size(), 0.0) {}

const Vector& Optimizer::parameters_of(std::size_t) const {
    return x;
}

std::vector<Slice> Optimizer::slices(bool compressed) const {
    std::vector<Slice> found;
    std::uint64_t begin = 0;
    for (std::size_t k = 0; k < model.tensors.size(); ++k) {
        const Tensor& tensor = model.tensors[k];
        if (model.groups[tensor.group].no_compress != compressed)
            found.push_back({{begin, tensor.count}, k, tensor.group});
        begin += tensor.count;
    }
    return found;
}

void Optimizer::step(const PerRank& gradients) {
    const bool exact = next_is_exact();
    grad_norm = norm_of(mean_of(gradients)) / gradient_scale;
    const double norm = exact ? grad_norm : told_norm;
    const double clip = model.max_grad_norm > 0 && norm > model.max_grad_norm ? model.max_grad_norm / norm : 1;
    PerRank scaled = gradients;
    for (Vector& each : scaled)
        for (double& g : each) g *= clip / gradient_scale;
    const Vector average = mean_of(scaled);
    ++steps;
    for (const Slice& slice : slices(false)) dense_update(slice, average);
    update(scaled, average);
}

double Optimizer::correction(double beta, std::uint64_t t) const {
    return model.bias_correction ? 1 / (1 - std::pow(beta, static_cast<double>(t))) : 1;
}

void Optimizer::update_moments(const Slice& slice, const Vector& average) {
    const Settings& s = settings(slice);
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) {
        m[i] = s.beta1 * m[i] + (1 - s.beta1) * average[i];
        v[i] = s.beta2 * v[i] + (1 - s.beta2) * average[i] * average[i];
    }
}

double Optimizer::denominator(const Slice& slice, double variance, std::uint64_t updates) const {
    return std::sqrt(correction(settings(slice).beta2, updates) * variance) + settings(slice).eps;
}

Vector Optimizer::adam_direction(const Slice& slice, std::uint64_t v_updates) const {
    Vector direction(x.size(), 0.0);
    const double a = correction(settings(slice).beta1, steps);
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
        direction[i] = a * m[i] / denominator(slice, v[i], v_updates);
    return direction;
}

void Optimizer::adam_update(const Slice& slice, std::uint64_t v_updates) {
    const Settings& s = settings(slice);
    const Vector direction = adam_direction(slice, v_updates);
    for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
        x[i] -= s.lr * (direction[i] + s.weight_decay * x[i]);
}

void Optimizer::dense_update(const Slice& slice, const Vector& average) {
    update_moments(slice, average);
    adam_update(slice, updates_of(slice));
}

void Adam::update(const PerRank&, const Vector& average) {
    for (const Slice& slice : slices(true)) dense_update(slice, average);
}

void CodedAdam::warm_up(const PerRank& gradients, const Vector&) {
    const Vector average = exchange(gradients);
    for (const Slice& slice : slices(true)) dense_update(slice, average);
}

void OnebitAdam::compressed(const PerRank& gradients) {
    PerRank momentum = means_of_nodes(gradients);
    for (Vector& each : momentum)
        for (const Slice& slice : slices(true))
            for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
                each[i] = settings(slice).beta1 * m[i] + (1 - settings(slice).beta1) * weighted(slice, i, each[i]);
    const Vector average = exchange(momentum);
    for (const Slice& slice : slices(true)) {
        std::copy_n(average.begin() + static_cast<std::ptrdiff_t>(slice.range.begin), slice.range.count,
                    m.begin() + static_cast<std::ptrdiff_t>(slice.range.begin));
        if (!model.exchange_updates) {
            adam_update(slice, frozen_updates());
            continue;
        }
        const Settings& s = settings(slice);
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i)
            x[i] -= s.lr * (correction(s.beta1, steps) * m[i] + s.weight_decay * x[i]);
    }
}

} // namespace oracle
