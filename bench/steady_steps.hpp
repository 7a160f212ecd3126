// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

namespace onebit::bench {

// The config of an optimizer that does the same work in every step after the first step, which ends its warm-up.
inline onebit_optimizer_config_t steady_config(onebit_optimizer_kind_t kind) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 1e-6);
    if (kind == ONEBIT_OPTIMIZER_ADAM || kind == ONEBIT_OPTIMIZER_LAMB) return config;
    config.freeze_step = 1;
    config.follow_interval = ONEBIT_FOLLOW_NEVER;
    config.local_steps = 1;
    return config;
}

} // namespace onebit::bench
