// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include "c_api/guard.hpp"

onebit_status_t onebit_set_log_callback(onebit_log_fn function, void* context) noexcept {
    return onebit::guard([&] {
        onebit::set_log_callback(function, context);
        return onebit::Status();
    });
}
