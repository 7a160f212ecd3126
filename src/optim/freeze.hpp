// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onebit {

/// When 1-bit Adam's warm-up ends by itself [1-bit Adam, section 7.1]: once the learning rate has warmed up and the
/// variance has settled, |v_t|_1 / |v_(t - delta)|_1 within 0.96 to 1/0.96, delta = 1/(1 - beta2) steps. (The paper
/// gives the lower bound only: a variance that is still growing would pass it at once.)
class AutomaticFreeze {
  public:
    /// Steps, even where beta2 is next to 1.
    static constexpr std::size_t kLongestHistory = 1000000;

    AutomaticFreeze(double beta2, std::uint64_t lr_warmup_steps);

    /// To be told |v_t|_1 after every warm-up step t = 1, 2, ...; true if t is to be the last one.
    bool observe(std::uint64_t step, double variance_norm);
    /// The last step's |v_t|_1 / |v_(t - delta)|_1; 0 where there was none to compare with.
    double ratio() const { return ratio_; }
    /// Whether `step` is the one on which a freeze is overdue: 10 delta after the learning rate's warm-up.
    bool is_overdue(std::uint64_t step) const { return step == lr_warmup_steps_ + 10 * delta_; }
    /// What the ratio must be within.
    static constexpr double kSettled = 0.96;
    /// What it remembers.
    std::vector<double>& history() { return norms_; }

  private:
    std::uint64_t delta_;
    std::uint64_t lr_warmup_steps_;
    double ratio_ = 0;
    std::vector<double> norms_; ///< of the last delta steps; step t at t mod delta
};

} // namespace onebit
