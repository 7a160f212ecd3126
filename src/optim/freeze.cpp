// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/freeze.hpp"

#include <algorithm>
#include <cmath>

namespace onebit {

AutomaticFreeze::AutomaticFreeze(double beta2, std::uint64_t lr_warmup_steps)
    : delta_(static_cast<std::uint64_t>(std::clamp(std::round(1 / (1 - beta2)), 1.0, double{kLongestHistory}))),
      lr_warmup_steps_(lr_warmup_steps),
      norms_(delta_) {}

bool AutomaticFreeze::observe(std::uint64_t step, double variance_norm) {
    double& slot = norms_[step % delta_];
    const double before = slot; // of step - delta
    slot = variance_norm;
    ratio_ = step > delta_ && before > 0 ? variance_norm / before : 0;
    return step >= lr_warmup_steps_ && ratio_ >= kSettled && ratio_ <= 1 / kSettled;
}

} // namespace onebit
