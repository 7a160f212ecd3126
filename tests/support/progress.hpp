// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Started operations that onebit_comm_progress advances, and the results that their callbacks get.
#pragma once

#include <onebit/onebit.h>

#include <string>
#include <thread>

#include "support/ranks.hpp"

namespace onebit_test {

inline void progress_to_the_end(onebit_comm_t comm, RankLog& log) {
    for (int active = 1; active > 0; std::this_thread::yield())
        ONEBIT_EXPECT_OK(log, onebit_comm_progress(comm, &active));
}

// Polls an operation until it has ended: test(&done).
template <typename Test>
onebit_status_t poll(const Test& test) {
    onebit_status_t status = ONEBIT_SUCCESS;
    for (int done = 0; done == 0; std::this_thread::yield()) status = test(&done);
    return status;
}

// The results that a callback got.
struct Told {
    int times = 0;
    onebit_status_t status = ONEBIT_ERROR_INTERNAL;
    std::string message;

    static void hear(void* context, onebit_status_t status) {
        Told& told = *static_cast<Told*>(context);
        ++told.times;
        told.status = status;
        told.message = onebit_last_error();
    }
};

} // namespace onebit_test
