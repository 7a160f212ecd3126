// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The freeze: when it comes, what it masks, and the compressed exchange that follows.
#include <algorithm>
#include <cmath>

#include "oracle/optimizers.hpp"

namespace oracle {

FreezeRule::FreezeRule(double beta2, std::uint64_t lr_warmup_steps)
    : delta_(static_cast<std::uint64_t>(std::llround(1 / (1 - beta2)))), lr_warmup_steps_(lr_warmup_steps) {}

bool FreezeRule::observe(double v_norm) {
    norms_.push_back(v_norm);
    const std::uint64_t t = norms_.size();
    if (t <= delta_) return false;
    const double before = norms_[t - delta_ - 1]; // norms_[k] is of step k + 1
    if (before == 0) return false;
    last_ratio_ = v_norm / before;
    if (t < lr_warmup_steps_) return false; // "no automatic freeze before this step"
    margin_ = std::min({margin_, std::fabs(last_ratio_ - 0.96), std::fabs(last_ratio_ - 1 / 0.96)});
    return last_ratio_ >= 0.96 && last_ratio_ <= 1 / 0.96;
}

namespace {

std::uint64_t compressed_count(const Model& model) {
    std::uint64_t count = 0;
    for (const Tensor& tensor : model.tensors)
        if (!model.groups[tensor.group].no_compress) count += tensor.count;
    return count;
}

} // namespace

FreezingOptimizer::FreezingOptimizer(const Model& model_in, const Vector& parameters)
    : Optimizer(model_in, parameters),
      reduce(compressed_count(model_in), model_in.ranks, model_in.scale, model_in.group),
      sign_margin(compressed_count(model_in), 1e300) {
    for (const Slice& slice : slices(true))
        for (std::uint64_t i = slice.range.begin; i < slice.range.end(); ++i) elements_.push_back(i);
}

void FreezingOptimizer::freeze_by_rule(std::uint64_t lr_warmup_steps) {
    double largest = 0;
    for (const Slice& slice : slices(true)) largest = std::max(largest, settings(slice).beta2);
    rule_ = {FreezeRule(largest, lr_warmup_steps)};
}

Vector FreezingOptimizer::packed(const Vector& whole) const {
    Vector part;
    for (std::uint64_t i : elements_) part.push_back(whole[i]);
    return part;
}

Vector FreezingOptimizer::unpacked(const Vector& part) const {
    Vector whole(x.size(), 0.0);
    for (std::size_t k = 0; k < elements_.size(); ++k) whole[elements_[k]] = part[k];
    return whole;
}

void FreezingOptimizer::mask_where_v_is_zero() {
    std::vector<bool> mask;
    for (double variance : packed(v)) mask.push_back(variance != 0);
    reduce.set_mask(mask);
}

void FreezingOptimizer::freeze_now() {
    freeze_step = steps;
    mask_where_v_is_zero();
    mask_.assign(x.size(), true);
    for (std::uint64_t i : elements_) mask_[i] = v[i] != 0;
    for (std::size_t i = 0; i < m.size(); ++i)
        if (!mask_[i]) m[i] = 0;
    after_freeze();
}

std::uint64_t FreezingOptimizer::masked() const {
    return static_cast<std::uint64_t>(std::count(mask_.begin(), mask_.end(), false));
}

bool FreezingOptimizer::takes_part(std::uint64_t element) const {
    return mask_.empty() || mask_[element];
}

void FreezingOptimizer::warm_up(const PerRank&, const Vector& average) {
    ++exact_rounds;
    for (const Slice& slice : slices(true)) dense_update(slice, average);
}

void FreezingOptimizer::update(const PerRank& gradients, const Vector& average) {
    exchanged = false;
    if (frozen()) return compressed(gradients);
    warm_up(gradients, average);
    double norm = 0;
    for (double variance : packed(v)) norm += std::fabs(variance);
    const bool by_rule = !rule_.empty() && rule_.front().observe(norm);
    if (by_rule || steps == planned_freeze_) freeze_now();
}

Vector FreezingOptimizer::exchange(const PerRank& values) {
    PerRank inputs;
    for (const Vector& each : values) inputs.push_back(packed(each));
    reduce.step(inputs);
    exchanged = true;
    ++compressed_rounds;
    note_margins();
    return unpacked(reduce.result);
}

void FreezingOptimizer::note_margins() {
    for (std::size_t i = 0; i < sign_margin.size(); ++i) {
        if (!reduce.takes_part(i)) continue;
        double mean_scale = 0;
        for (std::size_t r = 0; r < reduce.worker_c.size(); ++r) {
            const double s = reduce.worker_scale[r][i];
            sign_margin[i] = std::min(sign_margin[i], std::fabs(reduce.worker_c[r][i]) / s);
            mean_scale += s / static_cast<double>(reduce.ranks());
        }
        sign_margin[i] = std::min(sign_margin[i], std::fabs(reduce.server_c[i]) / mean_scale);
    }
}

} // namespace oracle
