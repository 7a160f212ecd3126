// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace onebit {

/// One norm of one tensor, as a rule sees it after a step.
struct FreezeQuantity {
    onebit_freeze_wait_t what = ONEBIT_FREEZE_WAIT_VARIANCE; ///< the norm is |v|_1; or _PARAMETERS: |x|_2 squared
    std::size_t tensor = 0;                                  ///< its number
    double norm = 0;
    double correction = 1; ///< the update's factor of v, for v's bias
};

/// What keeps a warm-up from ending.
struct FreezeWait {
    onebit_freeze_wait_t what = ONEBIT_FREEZE_WAIT_STEPS;
    std::size_t tensor = 0; ///< whose norm has not settled
    double ratio = 0;       ///< the norm over the norm a window ago; 0 where there was none
};

/// 1/(1 - beta2), the number of steps that v remembers; bounded where beta2 is close to 1.
inline constexpr std::uint64_t kMostStepsRemembered = 1000000;
std::uint64_t steps_remembered(double beta2);

/// Decides when a warm-up ends by itself. All that it sees is the same on every rank, so its decision is too.
class FreezeRule {
  public:
    virtual ~FreezeRule() = default;

    /// Whether the rule needs the norms after this step. Steps count from 1.
    virtual bool looks_at(std::uint64_t step) const = 0;
    /// Called after each step that it looks at; true if the step is the warm-up's last. `rates`: by group.
    virtual bool observe(std::uint64_t step, std::span<const double> rates,
                         std::span<const FreezeQuantity> quantities) = 0;

    /// Why the last step that the rule looked at was not the warm-up's last.
    const FreezeWait& wait() const { return wait_; }
    /// The band that ratios must lie in, [band, 1/band].
    double band() const { return band_; }
    /// Whether to report after this step that there is no freeze yet: 10 windows after the learning rate's warm-up, and
    /// each time this number of steps has doubled.
    bool is_overdue(std::uint64_t step) const;
    /// All that the rule remembers: zeros at the start. The next look forgets the history of other settings.
    std::vector<double>& history() { return history_; }
    /// After a load.
    void forget_wait() { wait_ = {}; }
    /// After a thaw: returns to the initial state.
    void forget();

  protected:
    /// `numbers`: how many numbers the rule remembers.
    FreezeRule(std::uint64_t kind, std::uint64_t window, std::uint64_t lr_warmup_steps, double band,
               std::size_t numbers);

    /// Called first in a look: makes sure that the memory is this rule's own.
    void recognise_memory();
    std::span<double> memory() { return std::span(history_).subspan(1); }

    std::uint64_t window() const { return window_; }
    std::uint64_t lr_warmup_steps() const { return lr_warmup_steps_; }
    bool in_band(double ratio) const { return ratio >= band_ && ratio <= 1 / band_; }
    void waits(const FreezeWait& wait) { wait_ = wait; }

  private:
    std::uint64_t window_;
    std::uint64_t lr_warmup_steps_;
    double band_;
    double mark_;                 ///< a number that tells rules and settings apart
    std::vector<double> history_; ///< the mark, and what the rule remembers
    FreezeWait wait_;
};

/// The rule of config.freeze_step = ONEBIT_FREEZE_AUTO or ONEBIT_FREEZE_PAPER (docs/OPTIMIZERS.md, "Freeze"); NULL for
/// others. `beta2`: the largest of tensors that compress. `num_quantities`: how many the rule will see.
std::unique_ptr<FreezeRule> make_freeze_rule(const onebit_optimizer_config_t& config, double beta2,
                                             std::size_t num_groups, std::size_t num_quantities);

/// The longest history of any rule with any settings.
std::size_t longest_freeze_history(std::size_t num_groups, std::size_t num_quantities);

} // namespace onebit
