// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"
#include "optim/rank_sum.hpp"
#include "optim/settings.hpp"

namespace onebit {

/// Follows variances that a freeze has stopped, tensor by tensor (docs/OPTIMIZERS.md, "After the freeze"). Every so
/// many steps it estimates the mean of (g/D)^2 over a tensor, g being the gradients' average, from a sketch: by that
/// factor the variance has changed. The same on every rank, wherever the tensors lie. Where momenta are exchanged the
/// change is known, and nothing follows from it.
class VarianceFollower {
  public:
    /// Of all compressed tensors. Collective; blocks.
    static Status create(Communicator& communicator, const Settings& settings, std::size_t num_tensors,
                         const std::vector<Bucket>& buckets, std::unique_ptr<VarianceFollower>* follower);

    /// After a freeze or a load: looks at the frozen preconditioners. Reads a GPU's.
    void look_at(const std::vector<Bucket>& buckets);
    /// At a freeze: nothing has changed yet.
    void restart();

    bool measures_in(std::uint64_t step) const { return step % interval_ == 0; }
    /// In such a step, once its gradients are known to count, which it multiplies by `factor`. Changes nothing yet.
    /// Collective; blocks.
    Status measure(const std::vector<Bucket>& buckets, float factor);
    /// After that step: takes over what was measured.
    void take(const std::vector<Bucket>& buckets);

    /// What the tensor's variance is now, over what it was at the freeze; and what gradients that are divided by the
    /// frozen D are therefore multiplied by.
    double ratio(std::size_t tensor) const;
    float factor(std::size_t tensor) const { return followed_[tensor].factor; }
    /// The tensor whose variance has grown most.
    std::size_t most_grown() const;

    /// By tensor, the logarithm of its ratio: what is saved.
    std::vector<double>& log_ratios() { return log_ratios_; }
    static bool is_possible(double log_ratio);

    const Status& broken() const { return sums_->broken(); }
    std::uint64_t bytes_sent() const { return sums_->bytes_sent(); }
    std::size_t bytes() const;

  private:
    /// What is known of a tensor. With a = sqrt(v) / D, the variance's share of the denominator, of each element:
    struct Followed {
        double eps = 0;
        double shares = 0;  ///< sum of a
        double squares = 0; ///< sum of a^2: of (g/D)^2, were g^2 still v
        double forgets = 0; ///< 1 - beta2^interval: what a measurement counts
        float factor = 1;
    };

    VarianceFollower(const Settings& settings, std::size_t num_tensors, const std::vector<Bucket>& buckets,
                     std::unique_ptr<RankSum> sums);
    std::span<float> add_sketches(const Bucket& bucket, float factor, std::span<float> sums);
    void take(std::size_t tensor, double squares);
    void update_factor(std::size_t tensor);

    std::uint64_t interval_;
    bool adapts_; ///< the factors
    int ranks_;
    std::vector<Followed> followed_; ///< by tensor
    std::vector<double> log_ratios_; ///< likewise
    std::unique_ptr<RankSum> sums_;  ///< of the compressed tensors' sketches
    AlignedBuffer<float> sketches_;  ///< of one bucket's runs
};

} // namespace onebit
