// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/settings.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <string>

#include "collectives/communicator/compare_ranks.hpp"
#include "collectives/selection/level_plan.hpp"
#include "collectives/selection/read_config.hpp"
#include "compress/codec.hpp"
#include "core/hash.hpp"
#include "core/structs.hpp"

namespace onebit {
namespace {

// The values that 0 stands for, and the most steps.
constexpr std::uint64_t kFreezeWindow = 256;
constexpr double kFreezeBand = 0.9;
constexpr std::uint64_t kMostFreezeWindow = 1000000;
constexpr std::uint32_t kFollowInterval = 64;
constexpr double kThawRatio = 4;

constexpr double kMostSquare = FLT_MAX * (1 - 0x1p-8); ///< of a gradient

Status out_of_range(const std::string& member, double value, const char* range) {
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: %g is not %s", member.c_str(), value, range);
}

// Checks values as the floats they are used as; written so that a NaN fails too.
bool at_least_zero(double value) {
    return value >= 0 && std::isfinite(static_cast<float>(value));
}

bool is_beta(double value) {
    return value >= 0 && static_cast<float>(value) < 1;
}

/// The caller's groups, or one with the config's own values.
Status read_groups(const onebit_optimizer_config_t& config, std::vector<onebit_param_group_t>* groups) {
    if ((config.groups == nullptr) != (config.num_groups == 0)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.groups is %s, but config.num_groups is %zu",
                             config.groups == nullptr ? "NULL" : "not NULL", config.num_groups);
    }
    if (config.num_groups == 0) {
        onebit_param_group_t group = ONEBIT_PARAM_GROUP_INIT(config.lr);
        group.beta1 = config.beta1;
        group.beta2 = config.beta2;
        group.eps = config.eps;
        group.weight_decay = config.weight_decay;
        groups->push_back(group);
        return check_group("config.", group);
    }
    for (std::size_t i = 0; i < config.num_groups; ++i) {
        const std::string name = "config.groups[" + std::to_string(i) + "]";
        onebit_param_group_t group;
        ONEBIT_RETURN_IF_ERROR(read_element(name.c_str(), config.groups, i, &group));
        ONEBIT_RETURN_IF_ERROR(check_group(name + ".", group));
        groups->push_back(group);
    }
    return {};
}

/// Checks for what GPUs support so far.
Status check_memory(const Settings& settings, const Transport& transport) {
    const onebit_optimizer_config_t& config = settings.config;
    if (config.memory != ONEBIT_MEMORY_HOST && config.memory != ONEBIT_MEMORY_CUDA) {
        return out_of_range("config.memory", config.memory, "one of its constants");
    }
    if (config.memory == ONEBIT_MEMORY_HOST) return {};
    if (config.codec != ONEBIT_CODEC_SIGN) {
        return Status::error(
            ONEBIT_ERROR_UNSUPPORTED,
            "config.codec: in a GPU's memory optimizers exchange by ONEBIT_CODEC_SIGN; an allreduce there "
            "takes others, too");
    }
    if (config.algorithm > ONEBIT_ALGORITHM_PIPELINED) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.algorithm: %s is for ONEBIT_MEMORY_HOST; in a GPU's memory exchanges are "
                             "ONEBIT_ALGORITHM_FLAT or _PIPELINED",
                             algorithm_name(config.algorithm));
    }
    if (settings.bucket_size() > 0 && transport.is_stream_ordered()) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.%s: not over %s, which wants exchanges in one order on all ranks",
                             config.bucket_size > 0 ? "bucket_size" : "group", transport.name());
    }
    return {};
}

/// Checks the settings of what is followed after a freeze.
Status check_following(const onebit_optimizer_config_t& config) {
    const bool asked = config.follow_interval != 0 && config.follow_interval != ONEBIT_FOLLOW_NEVER;
    if (asked && !freezes(config.kind)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.follow_interval: given to a kind that doesn't freeze (leave it at 0)");
    }
    if (config.thaw_ratio == 0 || (config.thaw_ratio > 1 && std::isfinite(config.thaw_ratio))) return {};
    return out_of_range("config.thaw_ratio", config.thaw_ratio, "0 or a number > 1");
}

Status check_algorithm(const Settings& settings) {
    const onebit_algorithm_t algorithm = settings.config.algorithm;
    if (algorithm < ONEBIT_ALGORITHM_AUTO || algorithm > ONEBIT_ALGORITHM_LEVELS) {
        return out_of_range("config.algorithm", algorithm, "one of its constants");
    }
    if (algorithm != ONEBIT_ALGORITHM_DENSE || !settings.compresses()) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                         "config.algorithm: ONEBIT_ALGORITHM_DENSE compresses nothing: ONEBIT_OPTIMIZER_ADAM and _LAMB "
                         "with ONEBIT_CODEC_SIGN average exactly");
}

/// Takes the levels of the caller's config. An error is then of one shard, as on two levels.
Status take_levels(const onebit_optimizer_config_t& config, Settings* settings) {
    onebit_allreduce_config_t exchange = ONEBIT_ALLREDUCE_CONFIG_INIT(0);
    exchange.algorithm = config.algorithm;
    exchange.memory = config.memory;
    exchange.codec = config.codec;
    exchange.levels = config.levels;
    exchange.num_levels = static_cast<std::uint32_t>(std::min<std::size_t>(config.num_levels, UINT32_MAX));
    ONEBIT_RETURN_IF_ERROR(read_levels(exchange, &settings->levels));
    ONEBIT_RETURN_IF_ERROR(check_levels(exchange, settings->levels));
    if (settings->levels.empty()) return {};
    if (!settings->compresses()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.levels: nothing is compressed: ONEBIT_OPTIMIZER_ADAM and _LAMB with "
                             "ONEBIT_CODEC_SIGN average exactly");
    }
    if (settings->levels.size() == 1 && settings->levels.front().compressed == 0) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.levels: an optimizer has one level, an exact one; onebit_allreduce_create has others");
}

Status check_config(const onebit_optimizer_config_t& config) {
    if (config.kind < ONEBIT_OPTIMIZER_ADAM || config.kind > ONEBIT_OPTIMIZER_ZERO_ONE_ADAM) {
        return out_of_range("config.kind", config.kind, "an optimizer");
    }
    if (config.bias_correction != 0 && config.bias_correction != 1) {
        return out_of_range("config.bias_correction", config.bias_correction, "0 or 1");
    }
    if (config.momentum_scaling != 0 && config.momentum_scaling != 1) {
        return out_of_range("config.momentum_scaling", config.momentum_scaling, "0 or 1");
    }
    if (config.group < ONEBIT_GROUP_BLOCK || config.group > ONEBIT_GROUP_TENSOR) {
        return out_of_range("config.group", config.group, "one of its constants");
    }
    if (config.threads > 1024) return out_of_range("config.threads", config.threads, "at most 1024");
    ONEBIT_RETURN_IF_ERROR(check_max_grad_norm("config.max_grad_norm", config.max_grad_norm));
    if (!freezes(config.kind) && config.freeze_step != ONEBIT_FREEZE_AUTO &&
        config.freeze_step != ONEBIT_FREEZE_NEVER) {
        return Status::error(
            ONEBIT_ERROR_INVALID_ARGUMENT,
            "config.freeze_step: given to a kind that doesn't freeze (leave it at ONEBIT_FREEZE_AUTO)");
    }
    if (config.freeze_window > kMostFreezeWindow) {
        return out_of_range("config.freeze_window", static_cast<double>(config.freeze_window), "at most 1000000");
    }
    if (!(config.freeze_band >= 0 && config.freeze_band < 1)) {
        return out_of_range("config.freeze_band", config.freeze_band, "in [0, 1)");
    }
    if (config.compressed != ONEBIT_COMPRESSED_UPDATES && config.compressed != ONEBIT_COMPRESSED_MOMENTA) {
        return out_of_range("config.compressed", config.compressed, "one of its constants");
    }
    ONEBIT_RETURN_IF_ERROR(check_following(config));
    if (config.missing_gradients != 0 && config.missing_gradients != 1) {
        return out_of_range("config.missing_gradients", config.missing_gradients, "0 or 1");
    }
    if (!at_least_zero(config.min_trust)) return out_of_range("config.min_trust", config.min_trust, "a float >= 0");
    if (!(config.max_trust >= config.min_trust && std::isfinite(static_cast<float>(config.max_trust)))) {
        return out_of_range("config.max_trust", config.max_trust, "a float >= min_trust");
    }
    if (!is_beta(config.trust_beta)) return out_of_range("config.trust_beta", config.trust_beta, "in [0, 1)");
    if (config.variance_updates == 0) return out_of_range("config.variance_updates", 0, "at least 1");
    if (config.local_step_scaler == 0) return out_of_range("config.local_step_scaler", 0, "at least 1");
    if (config.local_steps == 0) return out_of_range("config.local_steps", 0, "at least 1");
    return {};
}

/// A hash of the shapes of all tensors, in order.
std::uint64_t shape_hash(const std::vector<Tensor>& tensors) {
    std::vector<std::uint64_t> shape;
    for (const Tensor& tensor : tensors) {
        shape.insert(shape.end(), {tensor.count, tensor.group, static_cast<std::uint64_t>(tensor.gradient_type)});
    }
    return hash_bytes(shape.data(), shape.size() * sizeof(std::uint64_t));
}

double correction(bool wanted, double beta, std::uint64_t updates) {
    return wanted && updates > 0 ? 1 / (1 - std::pow(beta, static_cast<double>(updates))) : 1;
}

/// v is a mean of squares of the ranks' mean, with roundings on the way. A 256th is left for the roundings of a sum
/// over ranks. Room is also left for the roundings of v, a 2^-24th of v in each of 1 / (1 - beta2) steps.
double largest_root(const std::vector<onebit_param_group_t>& groups) {
    double share = 1;
    for (const onebit_param_group_t& group : groups) {
        const double forgotten = 1 - static_cast<double>(static_cast<float>(group.beta2)); // in a step
        share = std::min(share, std::max(1 - 0x3p-24 / forgotten, 0x1p-4));
    }
    return std::sqrt(kMostSquare * share);
}

} // namespace

Status check_lr(const char* member, double lr) {
    return at_least_zero(lr) ? Status() : out_of_range(member, lr, "a float >= 0");
}

Status check_max_grad_norm(const char* member, double max_grad_norm) {
    return at_least_zero(max_grad_norm) ? Status() : out_of_range(member, max_grad_norm, "a float >= 0");
}

Status check_group(const std::string& owner, const onebit_param_group_t& group) {
    ONEBIT_RETURN_IF_ERROR(check_lr((owner + "lr").c_str(), group.lr));
    if (!is_beta(group.beta1)) return out_of_range(owner + "beta1", group.beta1, "in [0, 1)");
    if (!is_beta(group.beta2)) return out_of_range(owner + "beta2", group.beta2, "in [0, 1)");
    if (!at_least_zero(group.eps) || static_cast<float>(group.eps) <= 0) {
        return out_of_range(owner + "eps", group.eps, "a float > 0");
    }
    if (!at_least_zero(group.weight_decay)) {
        return out_of_range(owner + "weight_decay", group.weight_decay, "a float >= 0");
    }
    if (group.no_compress != 0 && group.no_compress != 1) {
        return out_of_range(owner + "no_compress", group.no_compress, "0 or 1");
    }
    return {};
}

Status check_gradient_scale(double scale, int ranks) {
    // Checked as the float it is used as; the factor of sums over the ranks likewise.
    const double factor = 1 / scale / ranks;
    if (scale > 0 && std::isnormal(static_cast<float>(scale)) && std::isnormal(static_cast<float>(1 / scale)) &&
        std::isnormal(static_cast<float>(factor))) {
        return {};
    }
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "scale: %g is not a float > 0", scale);
}

std::uint64_t Settings::hash() const {
    const std::array<double, 2> of_all = {gradient_scale, config.max_grad_norm};
    std::uint64_t hash = hash_bytes(of_all.data(), sizeof(of_all));
    for (const onebit_param_group_t& group : groups) { // one by one: a step needs no memory
        const std::array<double, 6> its = {std::bit_cast<double>(hash), group.lr, group.beta1, group.beta2, group.eps,
                                           group.weight_decay};
        hash = hash_bytes(its.data(), sizeof(its));
    }
    return hash;
}

float Settings::largest_gradient(int ranks) const {
    return static_cast<float>(std::min(largest_root(groups) * gradient_scale, kMostSquare / ranks));
}

float Settings::largest_average() const {
    return static_cast<float>(largest_root(groups));
}

AdamBetas betas_of(const onebit_param_group_t& group) {
    return {static_cast<float>(group.beta1), static_cast<float>(1 - group.beta1), static_cast<float>(group.beta2),
            static_cast<float>(1 - group.beta2)};
}

float most_weighted(const onebit_param_group_t& group, int ranks) {
    return static_cast<float>(ranks / std::sqrt(1 - group.beta2));
}

AdamUpdate update_of(const onebit_param_group_t& group, bool bias_correction, std::uint64_t m_updates,
                     std::uint64_t v_updates) {
    constexpr double kMostEps = 0x1p125; // its inverse is a normal number: no preconditioner is 0
    return {static_cast<float>(group.lr), static_cast<float>(std::min(group.eps, kMostEps)),
            static_cast<float>(group.weight_decay),
            static_cast<float>(correction(bias_correction, group.beta1, m_updates)),
            static_cast<float>(correction(bias_correction, group.beta2, v_updates))};
}

Status read_settings(const onebit_optimizer_config_t* caller, const Transport& transport, Settings* settings) {
    if (caller == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config is NULL");
    onebit_optimizer_config_t config;
    ONEBIT_RETURN_IF_ERROR(read_struct("config", caller, &config));
    ONEBIT_RETURN_IF_ERROR(check_config(config));
    ONEBIT_RETURN_IF_ERROR(read_groups(config, &settings->groups));
    if (config.freeze_window == 0) config.freeze_window = kFreezeWindow;
    if (config.freeze_band == 0) config.freeze_band = kFreezeBand;
    if (config.follow_interval == 0) config.follow_interval = kFollowInterval;
    if (config.thaw_ratio == 0) config.thaw_ratio = kThawRatio;
    settings->config = config;
    settings->config.groups = nullptr; // the caller's
    settings->config.levels = nullptr;
    ONEBIT_RETURN_IF_ERROR(take_levels(config, settings));
    ONEBIT_RETURN_IF_ERROR(check_algorithm(*settings));
    ONEBIT_RETURN_IF_ERROR(check_memory(*settings, transport));
    ONEBIT_RETURN_IF_ERROR(check_codec(codec_config_of(config)));
    void*& stream = settings->config.stream;
    ONEBIT_RETURN_IF_ERROR(find_stream(transport, config.memory, config.stream, &stream));
    return make_memory_backend(config.memory, stream, &settings->backend);
}

Status agree_on_settings(Communicator& communicator, const Status& own, const Settings& settings,
                         const std::vector<Tensor>& tensors) {
    const onebit_optimizer_config_t& config = settings.config;
    std::vector<NamedValue> values = {
        {"num_tensors", tensors.size()},
        {"the number of elements in all tensors", tensors.empty() ? 0 : tensors.back().offset + tensors.back().count},
        {"the hash of the tensors' counts, groups and gradient types", shape_hash(tensors)},
        {"config.kind", static_cast<std::uint64_t>(config.kind)},
        {"config.memory", static_cast<std::uint64_t>(config.memory)},
        {"config.num_groups", settings.groups.size()},
        {"config.bias_correction", static_cast<std::uint64_t>(config.bias_correction)},
        NamedValue::of_double("config.max_grad_norm", config.max_grad_norm),
        {"config.freeze_step", config.freeze_step},
        {"config.lr_warmup_steps", config.lr_warmup_steps},
        {"config.freeze_window", config.freeze_window},
        NamedValue::of_double("config.freeze_band", config.freeze_band),
        {"config.compressed", static_cast<std::uint64_t>(config.compressed)},
        {"config.follow_interval", config.follow_interval},
        NamedValue::of_double("config.thaw_ratio", config.thaw_ratio),
        NamedValue::of_double("config.min_trust", config.min_trust),
        NamedValue::of_double("config.max_trust", config.max_trust),
        NamedValue::of_double("config.trust_beta", config.trust_beta),
        {"config.momentum_scaling", static_cast<std::uint64_t>(config.momentum_scaling)},
        {"config.variance_updates", config.variance_updates},
        {"config.local_step_scaler", config.local_step_scaler},
        {"config.local_steps", config.local_steps},
        {"config.group", static_cast<std::uint64_t>(config.group)},
        {"config.bucket_size", config.bucket_size},
        {"config.missing_gradients", static_cast<std::uint64_t>(config.missing_gradients)},
        {"config.algorithm", static_cast<std::uint64_t>(config.algorithm)},
        {"config.codec", static_cast<std::uint64_t>(config.codec)},
        {"config.kept", config.kept},
        {"config.value_bits", config.value_bits},
        {"config.error_type", static_cast<std::uint64_t>(config.error_type)},
        {"config.num_levels", settings.levels.size()},
    };
    ONEBIT_RETURN_IF_ERROR(compare_across_ranks(communicator, own, values));

    // As many groups on every rank now.
    std::vector<std::string> names; // of all values, for `values` points into them
    for (std::size_t i = 0; i < settings.groups.size(); ++i) {
        const std::string owner = config.num_groups == 0 ? "config." : "config.groups[" + std::to_string(i) + "].";
        for (const char* member : {"lr", "beta1", "beta2", "eps", "weight_decay", "no_compress"}) {
            names.push_back(owner + member);
        }
    }
    values.clear();
    auto name = names.begin();
    for (const onebit_param_group_t& g : settings.groups) {
        for (const double value : {g.lr, g.beta1, g.beta2, g.eps, g.weight_decay, double(g.no_compress)}) {
            values.push_back(NamedValue::of_double((name++)->c_str(), value));
        }
    }
    return compare_across_ranks(communicator, Status(), values);
}

} // namespace onebit
