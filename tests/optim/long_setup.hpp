// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A training through all stages, over a few odd tensors.
#pragma once

#include "support/training.hpp"

namespace onebit_test {

inline const Sizes& odd_sizes() {
    static const Sizes sizes = {33, 1, 127, 5, 64, 71};
    return sizes;
}

// 200 steps that see all stages: 0/1 Adam's rounds after the freeze come every 1, 2, 4 and 8 steps.
inline Setup long_setup(onebit_optimizer_kind_t kind) {
    Setup setup{optimizer_config(kind), odd_sizes()};
    if (freezes(kind)) setup.config.freeze_step = 64;
    setup.config.variance_updates = 8;
    setup.config.local_step_scaler = 20;
    setup.config.local_steps = 8;
    return setup;
}

} // namespace onebit_test
