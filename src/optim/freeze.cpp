// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/freeze.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "core/hash.hpp"
#include "core/partition.hpp"

namespace onebit {
namespace {

/// The number of looks in a window; up to twice as many in a short window.
constexpr std::uint64_t kLooks = 16;

/// ONEBIT_FREEZE_AUTO. Every tensor's norms have settled once each norm, for a whole window, has stayed within the band
/// around its value a window before.
class SettledNorms final : public FreezeRule {
  public:
    SettledNorms(const onebit_optimizer_config_t& config, double beta2, std::size_t num_groups,
                 std::size_t num_quantities)
        : FreezeRule(ONEBIT_FREEZE_AUTO, stride_of(config) * looks_of(config), config.lr_warmup_steps,
                     config.freeze_band, num_groups + 1 + num_quantities * (1 + looks_of(config))),
          stride_(stride_of(config)),
          first_step_(std::max({filling_of(config, beta2), 2 * window(), config.lr_warmup_steps})),
          num_groups_(num_groups),
          num_quantities_(num_quantities) {}

    bool looks_at(std::uint64_t step) const override { return step % stride_ == 0; }
    bool observe(std::uint64_t step, std::span<const double> rates,
                 std::span<const FreezeQuantity> quantities) override;

  private:
    static std::uint64_t stride_of(const onebit_optimizer_config_t& config) {
        return std::max<std::uint64_t>(config.freeze_window / kLooks, 1);
    }
    static std::uint64_t looks_of(const onebit_optimizer_config_t& config) {
        return ceil_divide(config.freeze_window, stride_of(config));
    }
    /// Steps until v, as updates use it, has filled up. Without bias correction v then still lacks a share of exp(-3).
    static std::uint64_t filling_of(const onebit_optimizer_config_t& config, double beta2) {
        return steps_remembered(beta2) * (config.bias_correction != 0 ? 1 : 3);
    }

    std::uint64_t looks() const { return window() / stride_; }
    // What the rule remembers.
    std::span<double> highest_rates() { return memory().first(num_groups_); }
    double& last_rise() { return memory()[num_groups_]; } ///< the last step that brought a new highest rate
    double& looks_in_band(std::size_t q) { return memory()[num_groups_ + 1 + q]; } ///< up to now, without a break
    double& norm_at(std::uint64_t step, std::size_t q) { ///< of that step, or of a window before until it is replaced
        const std::uint64_t slot = step / stride_ % looks();
        return memory()[num_groups_ + 1 + num_quantities_ * (1 + slot) + q];
    }

    void note_rates(std::uint64_t step, std::span<const double> rates);
    FreezeWait note_norms(std::uint64_t step, std::span<const FreezeQuantity> quantities);

    std::uint64_t stride_;
    std::uint64_t first_step_; ///< no freeze before it
    std::size_t num_groups_;
    std::size_t num_quantities_;
};

bool SettledNorms::observe(std::uint64_t step, std::span<const double> rates,
                           std::span<const FreezeQuantity> quantities) {
    recognise_memory();
    note_rates(step, rates);
    FreezeWait wait = note_norms(step, quantities);
    if (step < first_step_) {
        wait = {.what = ONEBIT_FREEZE_WAIT_STEPS};
    } else if (static_cast<double>(step - window()) < last_rise()) {
        wait = {.what = ONEBIT_FREEZE_WAIT_LR};
    }
    waits(wait);
    return wait.what == ONEBIT_FREEZE_WAIT_NONE;
}

void SettledNorms::note_rates(std::uint64_t step, std::span<const double> rates) {
    for (std::size_t g = 0; g < num_groups_; ++g) {
        if (rates[g] <= highest_rates()[g]) continue;
        highest_rates()[g] = rates[g];
        last_rise() = static_cast<double>(step);
    }
}

/// The norm that is furthest from having settled, if any norm has not settled.
FreezeWait SettledNorms::note_norms(std::uint64_t step, std::span<const FreezeQuantity> quantities) {
    FreezeWait furthest = {.what = ONEBIT_FREEZE_WAIT_NONE};
    double fewest_looks = static_cast<double>(looks());
    double furthest_off = 0;
    for (std::size_t q = 0; q < num_quantities_; ++q) {
        const double now = std::min(quantities[q].norm * quantities[q].correction, DBL_MAX);
        double& norm = norm_at(step, q);
        const double before = norm;
        norm = now;
        double ratio = 0;
        if (step > window() && before > 0) ratio = now / before;
        if (step > window() && before == 0 && now == 0) ratio = 1; // no gradient yet: nothing to settle
        double& looks_so_far = looks_in_band(q);
        looks_so_far = in_band(ratio) ? looks_so_far + 1 : 0;
        const double off = ratio > 0 ? std::abs(std::log(ratio)) : HUGE_VAL;
        if (looks_so_far > fewest_looks || (looks_so_far == fewest_looks && off <= furthest_off)) continue;
        if (looks_so_far >= static_cast<double>(looks())) continue;
        fewest_looks = looks_so_far;
        furthest_off = off;
        furthest = {quantities[q].what, quantities[q].tensor, ratio};
    }
    return furthest;
}

/// ONEBIT_FREEZE_PAPER [1-bit Adam, section 7.1]: |v_t|_1 / |v_(t - delta)|_1 within 0.96 to 1/0.96, delta =
/// 1/(1 - beta2) steps, v not corrected for its bias. (The paper gives the lower bound only: a variance that is still
/// growing would pass it at once.)
class NormRatio final : public FreezeRule {
  public:
    NormRatio(double beta2, std::uint64_t lr_warmup_steps)
        : FreezeRule(ONEBIT_FREEZE_PAPER, steps_remembered(beta2), lr_warmup_steps, 0.96, steps_remembered(beta2)) {}

    bool looks_at(std::uint64_t) const override { return true; }
    bool observe(std::uint64_t step, std::span<const double>, std::span<const FreezeQuantity> quantities) override {
        recognise_memory();
        double sum = 0;
        for (const FreezeQuantity& q : quantities) sum += q.what == ONEBIT_FREEZE_WAIT_VARIANCE ? q.norm : 0;
        double& norm = memory()[step % window()];
        const double before = norm;
        norm = sum;
        const double ratio = step > window() && before > 0 ? sum / before : 0;
        const bool may_end = step > window() && step >= lr_warmup_steps();
        waits({may_end ? ONEBIT_FREEZE_WAIT_VARIANCE : ONEBIT_FREEZE_WAIT_STEPS, 0, ratio});
        return may_end && in_band(ratio);
    }
};

} // namespace

std::uint64_t steps_remembered(double beta2) {
    return static_cast<std::uint64_t>(std::clamp(std::round(1 / (1 - beta2)), 1.0, double{kMostStepsRemembered}));
}

FreezeRule::FreezeRule(std::uint64_t kind, std::uint64_t window, std::uint64_t lr_warmup_steps, double band,
                       std::size_t numbers)
    : window_(window), lr_warmup_steps_(lr_warmup_steps), band_(band), history_(1 + numbers) {
    const std::uint64_t settings[] = {kind, window, std::bit_cast<std::uint64_t>(band), numbers};
    mark_ = static_cast<double>(1 + (hash_bytes(settings, sizeof(settings)) >> 12)); // exact, and not 0
}

void FreezeRule::recognise_memory() {
    if (history_.front() == mark_) return;
    std::ranges::fill(history_, 0);
    history_.front() = mark_;
}

void FreezeRule::forget() {
    std::ranges::fill(history_, 0);
    forget_wait();
}

bool FreezeRule::is_overdue(std::uint64_t step) const {
    if (step <= lr_warmup_steps_) return false;
    const std::uint64_t since = step - lr_warmup_steps_;
    return since % (10 * window_) == 0 && std::has_single_bit(since / (10 * window_));
}

std::unique_ptr<FreezeRule> make_freeze_rule(const onebit_optimizer_config_t& config, double beta2,
                                             std::size_t num_groups, std::size_t num_quantities) {
    if (config.freeze_step == ONEBIT_FREEZE_AUTO) {
        return std::make_unique<SettledNorms>(config, beta2, num_groups, num_quantities);
    }
    if (config.freeze_step == ONEBIT_FREEZE_PAPER) return std::make_unique<NormRatio>(beta2, config.lr_warmup_steps);
    return nullptr;
}

std::size_t longest_freeze_history(std::size_t num_groups, std::size_t num_quantities) {
    return 1 + std::max<std::size_t>(kMostStepsRemembered, num_groups + 1 + num_quantities * (1 + 2 * kLooks));
}

} // namespace onebit
