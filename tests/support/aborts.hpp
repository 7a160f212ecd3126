// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "support/handles.hpp"

namespace onebit_test {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kUntilAllWait{50};
constexpr std::chrono::milliseconds kWithin{1000};

// All ranks but the last make the call. They wait for the last rank, which aborts meanwhile.
template <typename Call>
void expect_ended(onebit_comm_t comm, RankLog& log, const Call& call) {
    log.barrier();
    if (log.last_rank()) {
        std::this_thread::sleep_for(kUntilAllWait);
        ONEBIT_EXPECT_OK(log, onebit_comm_abort(comm, "the backward pass ran out of memory"));
    } else {
        const auto begin = Clock::now();
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TRANSPORT, call());
        ONEBIT_EXPECT(log, Clock::now() - begin < kUntilAllWait + kWithin);
        ONEBIT_EXPECT(log,
                      holds(onebit_last_error(), "rank " + std::to_string(log.size() - 1) +
                                                     " called onebit_comm_abort;the backward pass ran out of memory"));
    }
    log.barrier();
}

} // namespace onebit_test
