// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>

#include "core/status.hpp"

namespace onebit {

/// Waits politely: polls for a while, then lets others have the core between two polls, for there may be more ranks
/// than cores. Gives up after `timeout` seconds without progress (0: never).
class Waiter {
  public:
    explicit Waiter(double timeout) : timeout_(timeout) {}

    void progress() { idle_polls_ = 0; }

    /// To be called after each look that found nothing. False once the time is up.
    [[nodiscard]] bool keep_waiting() {
        constexpr int kPollsBeforeYield = 64;
        constexpr int kPollsBetweenClocks = 256;
        if (idle_polls_++ < kPollsBeforeYield) return true;
        sched_yield();
        if (timeout_ <= 0 || idle_polls_ % kPollsBetweenClocks != 0) return true;
        const auto now = std::chrono::steady_clock::now();
        if (idle_polls_ == kPollsBetweenClocks) idle_since_ = now;
        return std::chrono::duration<double>(now - idle_since_).count() < timeout_;
    }

  private:
    double timeout_;
    std::int64_t idle_polls_ = 0;
    std::chrono::steady_clock::time_point idle_since_;
};

/// Calls test(&done, &moved), which returns a Status, until it is done. TIMEOUT, naming `what`, where peers don't
/// answer: nothing has moved for so long.
template <typename Test>
Status wait_until_done(const char* what, double timeout, const Test& test) {
    Waiter waiter(timeout);
    for (;;) {
        bool done = false;
        bool moved = false;
        ONEBIT_RETURN_IF_ERROR(test(&done, &moved));
        if (done) return {};
        if (moved) {
            waiter.progress();
        } else if (!waiter.keep_waiting()) {
            return Status::error(ONEBIT_ERROR_TIMEOUT, "%s: no answer from a peer for %g seconds (ONEBIT_TIMEOUT)",
                                 what, timeout);
        }
    }
}

} // namespace onebit
