// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "core/status.hpp"
#include "optim/kernels/kernels.hpp"
#include "optim/tensors.hpp"

namespace onebit {

/// Whether the kind freezes, and compresses from there on.
inline bool freezes(onebit_optimizer_kind_t kind) {
    return kind != ONEBIT_OPTIMIZER_ADAM && kind != ONEBIT_OPTIMIZER_LAMB;
}

/// What a caller's config says, checked; at least one group.
struct Settings {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ADAM, 0); ///< except its groups
    std::vector<onebit_param_group_t> groups;
    std::vector<onebit_level_t> levels;
    double gradient_scale = 1;
    std::shared_ptr<const MemoryBackend> backend; ///< where the tensors lie, and all that is kept for them

    bool freezes() const { return onebit::freezes(config.kind); }
    /// Adam and LAMB with a codec for what they average.
    bool compresses_gradients() const { return !freezes() && config.codec != ONEBIT_CODEC_SIGN; }
    bool compresses() const { return freezes() || compresses_gradients(); }
    bool exchanges_updates() const { return freezes() && config.compressed == ONEBIT_COMPRESSED_UPDATES; }
    /// Elements of a bucket; 0: there is one bucket.
    std::uint64_t bucket_size() const {
        return config.group == ONEBIT_GROUP_TENSOR ? 1 : config.bucket_size; // the least: no two share one
    }
    /// Whether frozen variances are measured. (1-bit LAMB's momenta have a fresh variance of their own.)
    bool measures_variances() const {
        return freezes() && config.follow_interval != ONEBIT_FOLLOW_NEVER &&
               (exchanges_updates() || config.kind != ONEBIT_OPTIMIZER_ONEBIT_LAMB);
    }
    /// The largest gradient that a step takes from each of `ranks` ranks, before the division by the gradient scale:
    /// squares, variances and the ranks' sum must be float32s.
    float largest_gradient(int ranks) const;
    /// The largest average of gradients from which a step forms v, including what error feedback has added to it.
    float largest_average() const;
    /// A hash of all that may change from step to step and must be the same on every rank.
    std::uint64_t hash() const;
};

AdamBetas betas_of(const onebit_param_group_t& group);
/// The largest g / D that a rank's g can have had in the warm-up's last step: when g alone has made v, v is (1 - beta2)
/// (g / ranks)^2.
float most_weighted(const onebit_param_group_t& group, int ranks);
/// The update in a step in which m has been updated `m_updates` times and v `v_updates` times.
AdamUpdate update_of(const onebit_param_group_t& group, bool bias_correction, std::uint64_t m_updates,
                     std::uint64_t v_updates);

Status check_lr(const char* member, double lr);
Status check_max_grad_norm(const char* member, double max_grad_norm);
/// `owner`: "config." or "config.groups[i]."
Status check_group(const std::string& owner, const onebit_param_group_t& group);
Status check_gradient_scale(double scale, int ranks);

/// INVALID_ARGUMENT or UNSUPPORTED with the member's name. Local.
Status read_settings(const onebit_optimizer_config_t* caller, const Transport& transport, Settings* settings);

/// Makes sure that all ranks want the same optimizer over the same tensors. Collective; blocks. `own`: what is already
/// wrong on this rank, if anything.
Status agree_on_settings(Communicator& communicator, const Status& own, const Settings& settings,
                         const std::vector<Tensor>& tensors);

} // namespace onebit
