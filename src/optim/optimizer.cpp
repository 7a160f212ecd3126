// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.hpp"

#include <cmath>
#include <vector>

#include "collectives/fingerprint.hpp"
#include "core/hash.hpp"
#include "optim/adam.hpp"

namespace onebit {
namespace {

struct Row {
    onebit_optimizer_kind_t kind;
    Status (*make)(Communicator&, const onebit_optimizer_config_t&, TensorSet, std::unique_ptr<Optimizer>*);
};

constexpr Row kRegistry[] = {
    {ONEBIT_OPTIMIZER_ADAM, Adam::create},
    {ONEBIT_OPTIMIZER_ONEBIT_ADAM, Adam::create},
};

const Row* find_row(onebit_optimizer_kind_t kind) {
    for (const Row& row : kRegistry) {
        if (row.kind == kind) return &row;
    }
    return nullptr;
}

Status out_of_range(const char* member, double value, const char* range) {
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.%s: %g is not %s", member, value, range);
}

Status check_config(const onebit_optimizer_config_t* config) {
    if (config == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config is NULL");
    ONEBIT_RETURN_IF_ERROR(check_struct("config", *config, ONEBIT_OPTIMIZER_CONFIG_VERSION));
    // As the floats they are used as; written so that a NaN fails too.
    const auto at_least_zero = [](double value) { return value >= 0 && std::isfinite(static_cast<float>(value)); };
    const auto is_beta = [](double value) { return value >= 0 && static_cast<float>(value) < 1; };
    if (find_row(config->kind) == nullptr) return out_of_range("kind", config->kind, "an optimizer");
    if (!at_least_zero(config->lr)) return out_of_range("lr", config->lr, "a float >= 0");
    if (!is_beta(config->beta1)) return out_of_range("beta1", config->beta1, "in [0, 1)");
    if (!is_beta(config->beta2)) return out_of_range("beta2", config->beta2, "in [0, 1)");
    if (!at_least_zero(config->eps) || static_cast<float>(config->eps) <= 0) {
        return out_of_range("eps", config->eps, "a float > 0");
    }
    if (!at_least_zero(config->weight_decay)) {
        return out_of_range("weight_decay", config->weight_decay, "a float >= 0");
    }
    if (config->bias_correction != 0 && config->bias_correction != 1) {
        return out_of_range("bias_correction", config->bias_correction, "0 or 1");
    }
    if (config->threads > 1024) return out_of_range("threads", config->threads, "at most 1024");
    return {};
}

/// One number for the shapes of all tensors, in order.
std::uint64_t shape_hash(const TensorSet& set) {
    std::vector<std::uint64_t> counts;
    for (const Tensor& tensor : set.tensors()) counts.push_back(tensor.count);
    return hash_bytes(counts.data(), counts.size() * sizeof(std::uint64_t));
}

/// Makes sure that all ranks want the same optimizer over the same tensors.
Status agree_on_config(Communicator& communicator, const Status& own, const onebit_optimizer_config_t& config,
                       const TensorSet& set) {
    const NamedValue values[] = {
        {"num_tensors", set.tensors().size()},
        {"the number of elements in all tensors", set.count()},
        {"the hash of the tensors' counts", shape_hash(set)},
        {"config.kind", static_cast<std::uint64_t>(config.kind)},
        NamedValue::of_double("config.lr", config.lr),
        NamedValue::of_double("config.beta1", config.beta1),
        NamedValue::of_double("config.beta2", config.beta2),
        NamedValue::of_double("config.eps", config.eps),
        NamedValue::of_double("config.weight_decay", config.weight_decay),
        {"config.bias_correction", static_cast<std::uint64_t>(config.bias_correction)},
        {"config.freeze_step", config.freeze_step},
        {"config.lr_warmup_steps", config.lr_warmup_steps},
    };
    return compare_across_ranks(communicator, own, values);
}

} // namespace

Status make_optimizer(Communicator& communicator, const onebit_optimizer_config_t* config,
                      const onebit_tensor_t* tensors, std::size_t num_tensors, const Status& own,
                      std::unique_ptr<Optimizer>* optimizer) {
    TensorSet set;
    const Status checked = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        ONEBIT_RETURN_IF_ERROR(check_config(config));
        return TensorSet::create(tensors, num_tensors, &set);
    });
    const onebit_optimizer_config_t checked_config =
        checked.ok() ? *config : onebit_optimizer_config_t ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0);
    ONEBIT_RETURN_IF_ERROR(agree_on_config(communicator, checked, checked_config, set));
    return find_row(checked_config.kind)->make(communicator, checked_config, std::move(set), optimizer);
}

} // namespace onebit
