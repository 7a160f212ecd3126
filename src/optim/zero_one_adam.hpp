// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/fused_optimizer.hpp"

namespace onebit {

/// When 0/1 Adam makes which round [0/1 Adam, section 6].
struct ZeroOneSchedule {
    // Before the freeze: exact rounds become rarer.
    std::uint64_t exact_interval = 1;
    std::uint64_t exact_rounds = 0;       ///< of all intervals: how often v has been updated
    std::uint64_t rounds_of_interval = 0; ///< of this one
    // After the freeze: all rounds become rarer.
    std::uint64_t local_interval = 1;
    std::uint64_t steps_of_interval = 0;
};

/// 0/1 Adam [0/1 Adam, algorithm 1]. Before the freeze every step has a round of gradients; most rounds are compressed.
/// After the freeze each rank makes some steps alone; then the ranks meet in a compressed round of the changes that the
/// steps have made to the parameters. docs/OPTIMIZERS.md says where this differs from the paper, and why.
class ZeroOneAdam final : public FusedOptimizer {
  public:
    static Status create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                         std::unique_ptr<Optimizer>* optimizer);

  private:
    ZeroOneAdam(Settings settings, std::vector<Tensor> tensors);

    Round next_round() const override;
    bool compresses_in_warm_up() const override { return true; }
    bool drifts() const override { return true; }
    Round round_after_freeze() const override { return local_round(); }
    std::unique_ptr<ValueSource> make_source(Bucket& bucket) override;
    bool must_prepare_exchange() const override { return frozen() || mask_is_old_; }
    Status before_exchange(Bucket& bucket) override;
    void update_exactly(Bucket& bucket) override;
    void update_compressed(Bucket& bucket) override;
    void update_locally(Bucket& bucket) override;
    Status freeze_bucket(Bucket& bucket) override;
    Status prepare_freeze(Bucket& bucket) override;
    void drop_preparations(Bucket& bucket) override { bucket.anchor = {}; }
    Status prepare_meeting(Bucket& bucket) override;
    Status meet(Bucket& bucket) override;
    void thawed() override;
    void begin_updates(Round round) override;
    void finish_step(Round round) override;
    void visit_numbers(NumberVisitor& visitor) override;
    Status check_numbers() const override;
    void loaded() override;
    void moments_set() override { mask_is_old_ = true; }
    void steps_set() override;

    Status look_at_variance(Bucket& bucket);
    /// Whether all rounds until the freeze are exact: its rule needs a v that fills up.
    bool stays_exact() const { return config().freeze_step == ONEBIT_FREEZE_AUTO; }
    Round local_round() const { return t() % schedule_.local_interval == 0 ? Round::kCompressed : Round::kLocal; }
    void move_on_schedule(Round round);
    void rejoin(Bucket& bucket);

    ZeroOneSchedule schedule_;
    bool mask_is_old_ = true;                            ///< v has changed since the exchange got the mask of its zeros
    std::uint64_t weighs_ = exchanges_updates() ? 1 : 0; ///< the unit of errors; 1: updates, 0: gradients
    std::vector<double> lr_sum_;                         ///< L, by group
    std::vector<double> decay_;                          ///< to be applied in the next round, by group
    std::vector<float> met_;                             ///< parameters of a bucket where the ranks meet before a thaw
};

} // namespace onebit
