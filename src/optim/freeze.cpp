// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/freeze.hpp"

#include <algorithm>
#include <cmath>

namespace onebit {

namespace {

constexpr double kSettled = 0.96;

} // namespace

AutomaticFreeze::AutomaticFreeze(double beta2, std::uint64_t lr_warmup_steps)
    : delta_(static_cast<std::uint64_t>(std::clamp(std::round(1 / (1 - beta2)), 1.0, double{kLongestHistory}))),
      lr_warmup_steps_(lr_warmup_steps),
      norms_(delta_) {}

bool AutomaticFreeze::observe(std::uint64_t step, double variance_norm) {
    double& slot = norms_[step % delta_];
    const double before = slot; // of step - delta
    slot = variance_norm;
    if (step <= delta_ || step < lr_warmup_steps_ || before <= 0) return false;
    const double ratio = variance_norm / before;
    return ratio >= kSettled && ratio <= 1 / kSettled;
}

} // namespace onebit
