// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// A training whose state has every kind of content, for tests that save it to files or pack it in memory.
#pragma once

#include "support/training.hpp"

namespace onebit_test {

// Two groups, one of them never compressed, and a row that never had a gradient before step 9.
inline Setup saved_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), {33, 61, 20, 1, 128}};
    setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
    setup.groups[0].weight_decay = 0.1;
    setup.groups[1].beta2 = 0.99;
    setup.groups[1].no_compress = 1;
    setup.group_of = {0, 0, 1, 0, 0};
    setup.copies = true;
    setup.copy_type = ONEBIT_FLOAT16;
    return setup;
}

inline Gradient saved_gradient(std::uint64_t seed) {
    return beginning_late(gaussian_gradient(33 + 61 + 20 + 1 + 128, seed), 40, 50, 9);
}

// As far as it is state: the norm is of a step that the loading optimizer hasn't made; copies are the parameters', even
// where the saving one had not yet written any.
inline bool same_state(Training& saved, Training& loaded) {
    Snapshot a(saved);
    const Snapshot b(loaded);
    a.info.grad_norm = b.info.grad_norm;
    a.copies = converted(a.parameters, ONEBIT_FLOAT16);
    return a.same_as(b);
}

} // namespace onebit_test
