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
    double correction = 1; ///< what the update multiplies v by for its bias
};

/// What keeps a warm-up from ending.
struct FreezeWait {
    onebit_freeze_wait_t what = ONEBIT_FREEZE_WAIT_STEPS;
    std::size_t tensor = 0; ///< whose norm has not settled
    double ratio = 0;       ///< that norm over the one a window ago; 0 where there was none
};

/// 1/(1 - beta2) steps, what v remembers; not without end where beta2 is next to 1.
inline constexpr std::uint64_t kMostStepsRemembered = 1000000;
std::uint64_t steps_remembered(double beta2);

/// Decides when a warm-up ends by itself. The same on every rank, for all that it sees is.
class FreezeRule {
  public:
    virtual ~FreezeRule() = default;

    /// Whether it wants to see the norms after this step. Steps count from 1.
    virtual bool looks_at(std::uint64_t step) const = 0;
    /// After each step that it looks at; true if that step is to be the warm-up's last. `rates`: by group.
    virtual bool observe(std::uint64_t step, std::span<const double> rates,
                         std::span<const FreezeQuantity> quantities) = 0;

    /// Why the last step that it looked at was not the warm-up's last.
    const FreezeWait& wait() const { return wait_; }
    /// The band that ratios must lie in, [band, 1/band].
    double band() const { return band_; }
    /// Whether a freeze that hasn't come is to be reported after this step: 10 windows after the learning rate's
    /// warm-up, and each time that as many steps again have passed as before.
    bool is_overdue(std::uint64_t step) const;
    /// All that it remembers: zeros at the start. That of a rule with other settings is forgotten at the next look.
    std::vector<double>& history() { return history_; }
    /// After a load.
    void forget_wait() { wait_ = {}; }
    /// After a thaw: as at the start.
    void forget();

  protected:
    /// `numbers`: of what it remembers.
    FreezeRule(std::uint64_t kind, std::uint64_t window, std::uint64_t lr_warmup_steps, double band,
               std::size_t numbers);

    /// Before anything else in a look: makes sure that the memory is this rule's own.
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

/// config.freeze_step = ONEBIT_FREEZE_AUTO or ONEBIT_FREEZE_PAPER, by docs/OPTIMIZERS.md, "Freeze"; NULL for all
/// others. `beta2`: the largest of what compresses. `num_quantities`: that it will see.
std::unique_ptr<FreezeRule> make_freeze_rule(const onebit_optimizer_config_t& config, double beta2,
                                             std::size_t num_groups, std::size_t num_quantities);

/// The longest history of any rule with any settings.
std::size_t longest_freeze_history(std::size_t num_groups, std::size_t num_quantities);

} // namespace onebit
