// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/fused_optimizer.hpp"

namespace onebit {

/// LAMB and 1-bit LAMB [1-bit LAMB, algorithm 1]: as Adam and 1-bit Adam, with a trust ratio for each tensor.
///
/// In the compression stage messages have one bit per element, as 1-bit Adam's. Messages are updates, and the trust
/// ratios stay the same; or, as in the paper, they are momenta k m, of one magnitude in all tensors. In the latter case
/// the gradient follows from the last two messages, and updates the fresh variance, which corrects the frozen trust
/// ratios. With a codec for gradients, LAMB averages its gradients by this codec, as Adam does.
class Lamb final : public FusedOptimizer {
  public:
    static Status create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                         std::unique_ptr<Optimizer>* optimizer);

  private:
    /// What LAMB keeps for one tensor; docs/OPTIMIZERS.md has the symbols.
    struct Layer {
        double trust_sum = 0; ///< c_sum
        std::uint64_t trust_updates = 0;
        double trust = 1;          ///< c_avg, once frozen
        double momentum_scale = 1; ///< k
        double correction = 1;     ///< r, of the last step
    };

    Lamb(Settings settings, std::vector<Tensor> tensors);

    std::unique_ptr<ValueSource> make_source(Bucket& bucket) override;
    void update_exactly(Bucket& bucket) override;
    void update_compressed(Bucket& bucket) override;
    Status freeze_bucket(Bucket& bucket) override;
    void thawed() override;
    float message_scale(const Tensor& tensor) const override {
        return static_cast<float>(layers_[tensor.number].momentum_scale);
    }
    /// Whether frozen trust ratios are corrected by the variance that follows from the last two messages.
    bool corrects() const { return config().kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB && !exchanges_updates(); }
    bool refreshes_variance() const override { return corrects(); }
    bool needs_norms() const override { return true; }
    void begin_momenta(Bucket& bucket);
    Status prepare_freeze(Bucket& bucket) override;
    void drop_preparations(Bucket& bucket) override { bucket.v_fresh = {}; }
    void add_freeze_quantities(const Bucket& bucket, std::vector<FreezeQuantity>* quantities) const override;
    void visit_numbers(NumberVisitor& visitor) override;
    Status check_numbers() const override;
    void steps_set() override { layers_.assign(layers_.size(), {}); }
    std::size_t own_bytes() const override;

    double trust_ratio(Layer& layer, std::span<const Segment> segments, bool remember);
    void correct(Layer& layer, bool decays, std::span<const Segment> segments) const;
    /// 1 / k: the factor that turns a message's values into m.
    Passes::FactorOf unscale_of() const {
        return [this](const Tensor& tensor) { return static_cast<float>(1 / layers_[tensor.number].momentum_scale); };
    }
    Passes::FactorOf step_of() const {
        return [this](const Tensor& tensor) { return step_sizes_[tensor.number]; };
    }

    std::vector<Layer> layers_;         ///< by tensor
    std::vector<float> step_sizes_;     ///< likewise; of this step
    std::vector<Findings> findings_;    ///< by segment, of the bucket at hand
    std::vector<double> squared_norms_; ///< of the parameters, by tensor; before the last exact step
    std::vector<double> magnitudes_;    ///< of the momenta at the freeze, by tensor of a bucket
};

} // namespace onebit
