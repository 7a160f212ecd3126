// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The common part of the tests of followed variances.
#pragma once

#include "support/training.hpp"

namespace onebit_test {

constexpr std::uint64_t kFreezeStep = 20;

// A variance that remembers ten steps, frozen after step 20 and measured every fourth step.
inline onebit_optimizer_config_t following_config(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = optimizer_config(kind);
    config.beta2 = 0.9;
    config.freeze_step = kFreezeStep;
    config.follow_interval = 4;
    config.variance_updates = 1000; // 0/1 Adam: exact until the freeze
    config.local_step_scaler = 20;
    config.local_steps = 4;
    return config;
}

} // namespace onebit_test
