// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/allreduce.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/adam_kernels.hpp"
#include "optim/freeze.hpp"
#include "optim/optimizer.hpp"

namespace onebit {

/// Adam and 1-bit Adam [1-bit Adam, algorithm 1]: 1-bit Adam's warm-up is Adam, and Adam is a warm-up without end.
///
/// Warm-up, step t <= T_w: g = exact average of the gradients; m, v and x as in Adam.
/// At T_w: v is frozen. Elements whose v is zero have never had a gradient; a sign code can't say zero, so they are
/// masked: their m and error stay zero from here on.
/// Compression, t > T_w: m_i = beta1 m + (1 - beta1) g_i on each rank; m = compressed average of m_i; x with the frozen
/// v.
///
/// With bias correction m is divided by 1 - beta1^t and v by 1 - beta2^min(t, T_w), the value it was frozen at.
class Adam final : public Optimizer {
  public:
    static Status create(Communicator& communicator, const onebit_optimizer_config_t& config, TensorSet tensors,
                         std::unique_ptr<Optimizer>* optimizer);

    Status step() override;
    Status set_lr(double lr) override;
    Status freeze() override;
    void fill_info(onebit_optimizer_info_t* info) const override;

  private:
    Adam(const onebit_optimizer_config_t& config, TensorSet tensors, unsigned threads);

    bool frozen() const { return freeze_step_ > 0; }
    Status warmup_step();
    Status compressed_step();
    bool warmup_ends();
    void request_freeze();
    Status begin_compression();
    void update_tensors();
    double variance_norm() const;

    onebit_optimizer_config_t config_;
    TensorSet tensors_;
    std::unique_ptr<Allreduce> allreduce_;
    unsigned threads_;
    AdamBetas betas_;

    AlignedBuffer<float> m_;
    AlignedBuffer<float> v_;
    AlignedBuffer<float> average_;      ///< of the gradients; in the warm-up only
    AlignedBuffer<std::uint32_t> mask_; ///< what request_freeze finds; in 1-bit Adam's warm-up only
    std::optional<AutomaticFreeze> automatic_freeze_;

    std::uint64_t steps_ = 0;
    std::uint64_t freeze_step_ = 0; ///< T_w; 0 while warming up
    bool freeze_requested_ = false; ///< the next step is the first compressed one
    std::uint64_t masked_ = 0;
    std::uint64_t warmup_bytes_sent_ = 0;
};

} // namespace onebit
