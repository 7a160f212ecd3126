// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What a program may change of a FusedOptimizer between two steps: addresses and settings. Settings that come while a
// step has begun apply to the next step: exchanges that have begun keep their settings.

#include <algorithm>

#include "core/structs.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {

// -------------------------------------------------------------------------------------------------- addresses ----

Status FusedOptimizer::check_number(std::size_t number) const {
    if (number < tensors_.size()) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensor: %zu, but there are %zu", number, tensors_.size());
}

Status FusedOptimizer::check_gradients(const Tensor& tensor, const void* gradients) const {
    ONEBIT_RETURN_IF_ERROR(check_alignment(tensor, "gradients", gradients, tensor.gradient_type));
    return check_place(tensor, "gradients", gradients, *settings_.backend);
}

Status FusedOptimizer::set_gradients(std::size_t number, const void* gradients) {
    ONEBIT_RETURN_IF_ERROR(check_number(number));
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    if (ready_[number]) ONEBIT_RETURN_IF_ERROR(check_between_steps());
    ONEBIT_RETURN_IF_ERROR(check_gradients(tensors_[number], gradients));
    tensors_[number].gradients = gradients;
    return {};
}

Status FusedOptimizer::set_all_gradients(const void* const* gradients, std::size_t num_tensors) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    if (gradients == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "gradients is NULL");
    if (num_tensors != tensors_.size()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "num_tensors: %zu, but there are %zu", num_tensors,
                             tensors_.size());
    }
    for (const Tensor& tensor : tensors_) ONEBIT_RETURN_IF_ERROR(check_gradients(tensor, gradients[tensor.number]));
    for (Tensor& tensor : tensors_) tensor.gradients = gradients[tensor.number];
    return {};
}

Status FusedOptimizer::set_parameters(std::size_t number, float* parameters) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    ONEBIT_RETURN_IF_ERROR(check_number(number));
    Tensor& tensor = tensors_[number];
    if (parameters == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: parameters is NULL", tensor.name.c_str());
    }
    ONEBIT_RETURN_IF_ERROR(check_alignment(tensor, "parameters", parameters, ONEBIT_FLOAT32));
    ONEBIT_RETURN_IF_ERROR(check_place(tensor, "parameters", parameters, *settings_.backend));
    float* const before = std::exchange(tensor.parameters, parameters);
    const Status apart = catch_exceptions([&] { return check_disjoint(tensors_); });
    if (!apart.ok()) tensor.parameters = before;
    return apart;
}

// --------------------------------------------------------------------------------------------------- settings ----

/// The settings of the next step that begins, for a setter to change.
FusedOptimizer::Coming& FusedOptimizer::coming() {
    if (has_coming_) return coming_;
    std::ranges::copy(settings_.groups, coming_.groups.begin());
    coming_.gradient_scale = settings_.gradient_scale;
    coming_.max_grad_norm = config().max_grad_norm;
    return coming_;
}

/// Applies coming(): at once, or when the step that has begun has ended. Needs no memory.
Status FusedOptimizer::changed() {
    has_coming_ = true;
    if (!has_begun()) take_coming();
    return {};
}

void FusedOptimizer::take_coming() {
    if (!has_coming_) return;
    has_coming_ = false;
    const auto same_denominator = [](const onebit_param_group_t& a, const onebit_param_group_t& b) {
        return a.eps == b.eps && a.beta2 == b.beta2;
    };
    if (!std::ranges::equal(coming_.groups, settings_.groups, same_denominator)) moments_set();
    std::ranges::copy(coming_.groups, settings_.groups.begin());
    settings_.gradient_scale = coming_.gradient_scale;
    settings_.config.max_grad_norm = coming_.max_grad_norm;
    take_betas();
    if (follower_ != nullptr) follower_->take_groups(settings_.groups, buckets_);
    if (coming_.freeze_rule == nullptr) return;
    freeze_rule_ = std::move(coming_.freeze_rule);
    greatest_beta2_ = greatest_beta2(settings_.groups);
}

void FusedOptimizer::take_betas() {
    for (std::size_t g = 0; g < settings_.groups.size(); ++g) {
        by_group_.betas[g] = betas_of(settings_.groups[g]);
        by_group_.betas[g].most_weighted = most_weighted(settings_.groups[g], ranks_);
    }
    by_group_.largest_average = settings_.largest_average();
}

/// Of tensors that compress.
double FusedOptimizer::greatest_beta2(const std::vector<onebit_param_group_t>& groups) const {
    double greatest = 0;
    for (const Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) {
            greatest = std::max(greatest, groups[tensor->group].beta2);
        }
    }
    return greatest;
}

Status FusedOptimizer::check_group_number(std::size_t group) const {
    if (group < settings_.groups.size()) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "group: %zu, but there are %zu", group,
                         settings_.groups.size());
}

Status FusedOptimizer::set_lr(double lr) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_lr("lr", lr));
    for (onebit_param_group_t& group : coming().groups) group.lr = lr;
    return changed();
}

Status FusedOptimizer::set_group_lr(std::size_t group, double lr) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_group_number(group));
    ONEBIT_RETURN_IF_ERROR(check_lr("lr", lr));
    coming().groups[group].lr = lr;
    return changed();
}

Status FusedOptimizer::set_gradient_scale(double scale) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_gradient_scale(scale, ranks_));
    coming().gradient_scale = scale;
    return changed();
}

Status FusedOptimizer::set_max_grad_norm(double max_grad_norm) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_max_grad_norm("max_grad_norm", max_grad_norm));
    if (norm_ == nullptr && max_grad_norm > 0) {
        return Status::error(
            ONEBIT_ERROR_UNSUPPORTED,
            "max_grad_norm: %g, but config.max_grad_norm was 0: the optimizer was created without what "
            "measures a norm",
            max_grad_norm);
    }
    coming().max_grad_norm = max_grad_norm;
    return changed();
}

Status FusedOptimizer::set_group(std::size_t number, const onebit_param_group_t* settings) {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_group_number(number));
    if (settings == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "settings is NULL");
    onebit_param_group_t group;
    ONEBIT_RETURN_IF_ERROR(read_struct("settings", settings, &group));
    ONEBIT_RETURN_IF_ERROR(check_group("settings.", group));
    ONEBIT_RETURN_IF_ERROR(check_stays(coming().groups[number], group));
    std::vector<onebit_param_group_t> groups = coming().groups;
    groups[number] = group;
    const double beta2 = greatest_beta2(groups);
    if (freeze_rule_ != nullptr && beta2 != greatest_beta2(coming().groups)) { // how long it looks depends on beta2
        coming().freeze_rule = make_freeze_rule(config(), beta2, groups.size(), quantities_.size());
    }
    coming().groups[number] = group;
    return changed();
}

/// Checks the members that can't change any more, or never could.
Status FusedOptimizer::check_stays(const onebit_param_group_t& before, const onebit_param_group_t& after) const {
    if (after.no_compress != before.no_compress) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "settings.no_compress: %d, but the optimizer was created with %d, which decides what is "
                             "exchanged together",
                             after.no_compress, before.no_compress);
    }
    const bool freezes = settings_.freezes() && before.no_compress == 0;
    if (!freezes || !is_frozen_or_will_be()) return {};
    const auto steps = static_cast<unsigned long long>(frozen() ? freeze_step_ : steps_);
    const auto frozen_as = [&](const char* member, double now, double then) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "settings.%s: %g, but the variance was frozen with %g after step %llu", member, now, then,
                             steps);
    };
    if (after.eps != before.eps) return frozen_as("eps", after.eps, before.eps);
    if (after.beta2 != before.beta2) return frozen_as("beta2", after.beta2, before.beta2);
    return {};
}

} // namespace onebit
