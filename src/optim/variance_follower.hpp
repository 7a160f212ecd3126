// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"
#include "optim/rank_sum.hpp"
#include "optim/settings.hpp"

namespace onebit {

/// Follows variances that a freeze has stopped, tensor by tensor (docs/OPTIMIZERS.md, "After the freeze"). At intervals
/// it estimates the mean of (g/D)^2 over a tensor from a sketch, where g is the gradients' average. The variance has
/// changed by this factor. The estimate is the same on every rank, wherever the tensors lie. Where momenta are
/// exchanged, the change is measured but not applied.
class VarianceFollower {
  public:
    /// For all compressed tensors. Collective; blocks.
    static Status create(Communicator& communicator, const Settings& settings, std::size_t num_tensors,
                         const std::vector<Bucket>& buckets, std::unique_ptr<VarianceFollower>* follower);

    /// Takes the groups' eps and beta2, which may change until a freeze.
    void take_groups(const std::vector<onebit_param_group_t>& groups, const std::vector<Bucket>& buckets);
    /// After a freeze or a load: looks at the frozen preconditioners. Reads a GPU's.
    void look_at(const std::vector<Bucket>& buckets);
    /// After a load of a state of `steps` steps: forgets what it knows of preconditioners.
    void loaded(bool frozen, std::uint64_t steps);
    /// At a freeze after `step`: nothing has changed yet.
    void restart(std::uint64_t step);

    /// The step of the last measurement, or of the freeze.
    std::uint64_t last_measured() const { return static_cast<std::uint64_t>(last_step()); }
    /// True once per interval; more often where factors are large: gradients that return must not make many such steps.
    bool measures_in(std::uint64_t step) const;
    /// Called in such a step, once its gradients are known to count; factor(tensor) is the step's factor of them.
    /// Changes nothing yet. Collective; blocks.
    Status measure(const std::vector<Bucket>& buckets, const Passes::FactorOf& factor);
    /// After that step: takes over what was measured.
    void take(const std::vector<Bucket>& buckets, std::uint64_t step);

    /// The factor of gradients that are divided by the frozen D. It makes D follow its variance.
    double factor(std::size_t tensor) const { return adapts_ ? 1 / followed_[tensor].stretch : 1; }
    /// The tensor's variance now over its variance at the freeze.
    double ratio(std::size_t tensor) const { return ratio_at(tensor) > 0 ? ratio_at(tensor) : 1; }
    /// The followed D^2 over the frozen D^2.
    double growth(std::size_t tensor) const { return followed_[tensor].stretch * followed_[tensor].stretch; }
    /// The tensor of the largest growth.
    std::size_t most_grown() const;

    /// What is saved: the step of the last measurement, or of the freeze, and by tensor its ratio; 0 stands for 1.
    std::vector<double>& numbers() { return numbers_; }
    /// Checks that a training of `steps` steps can have come to these numbers.
    Status check_numbers(std::uint64_t steps) const;

    void give_up(const Status& why) { sums_->give_up(why); }
    const Status& broken() const { return sums_->broken(); }
    std::uint64_t bytes_sent() const { return sums_->bytes_sent(); }
    std::size_t bytes() const;

  private:
    /// What is known of a tensor. With a = sqrt(v) / D, the variance's share of the denominator, of each element:
    struct Followed {
        double eps = 0;
        double shares = 0;  ///< sum of a
        double squares = 0; ///< sum of a^2; of (g/D)^2, if g^2 were still v
        double beta2 = 0;
        double stretch = 1; ///< sqrt(ratio v) + eps over D, of the tensor as a whole
        bool compresses = false;
    };

    VarianceFollower(const Settings& settings, std::size_t num_tensors, const std::vector<Bucket>& buckets,
                     std::unique_ptr<RankSum> sums);
    std::span<float> add_sketches(const Bucket& bucket, const Passes::FactorOf& factor, std::span<float> sums);
    void take(std::size_t tensor, double squares, std::uint64_t steps);
    void update_stretch(std::size_t tensor);
    // Of what is saved.
    double& last_step() { return numbers_[0]; }
    double last_step() const { return numbers_[0]; }
    double& ratio_at(std::size_t tensor) { return numbers_[1 + tensor]; }
    double ratio_at(std::size_t tensor) const { return numbers_[1 + tensor]; }

    std::uint64_t interval_;
    bool adapts_; ///< the factors to the measurements
    int ranks_;
    std::vector<Followed> followed_; ///< by tensor
    std::vector<double> numbers_;
    std::unique_ptr<RankSum> sums_; ///< of the compressed tensors' sketches
    AlignedBuffer<float> sketches_; ///< of one bucket's runs
};

} // namespace onebit
