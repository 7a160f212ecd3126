// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/abort_switch.hpp"
#include "core/fiber.hpp"
#include "core/status.hpp"

namespace onebit {

/// How long the calls on a communicator or a handle wait for peers, and what else ends their waiting.
struct Patience {
    double timeout = 0; ///< seconds without progress; 0: for ever
    std::shared_ptr<AbortSwitch> abort_switch;

    bool aborted() const { return abort_switch->tripped(); }
};

/// Waits politely: polls for a while, then lets others have the core between two polls, for there may be more ranks
/// than cores. Gives up after `patience.timeout` seconds without progress, or when the communicator is aborted. On a
/// fiber it goes back to who resumes it instead, after each look: there only an abort ends the waiting, for how long it
/// takes is the program's own doing.
class Waiter {
  public:
    explicit Waiter(const Patience& patience) : patience_(patience) {}

    void progress() {
        idle_polls_ = 0;
        (void)Fiber::pause();
    }

    /// To be called after each look that found nothing. False once it is no use to wait: failure() says why.
    [[nodiscard]] bool keep_waiting() {
        constexpr int kPollsBeforeYield = 64;
        constexpr int kPollsBetweenClocks = 256;
        if (Fiber::pause()) {
            idle_polls_ = 0;
            return !patience_.aborted();
        }
        if (idle_polls_++ < kPollsBeforeYield) return true;
        sched_yield();
        if (patience_.aborted()) return false;
        if (patience_.timeout <= 0 || idle_polls_ % kPollsBetweenClocks != 0) return true;
        const auto now = std::chrono::steady_clock::now();
        if (idle_polls_ == kPollsBetweenClocks) idle_since_ = now;
        return std::chrono::duration<double>(now - idle_since_).count() < patience_.timeout;
    }

    /// TRANSPORT with the abort's reason, or TIMEOUT, naming `what` was waited for.
    Status failure(const char* what) const {
        if (patience_.aborted()) return patience_.abort_switch->why();
        return Status::error(ONEBIT_ERROR_TIMEOUT, "%s: no answer from a peer for %g seconds (ONEBIT_TIMEOUT)", what,
                             patience_.timeout);
    }

  private:
    const Patience& patience_;
    std::int64_t idle_polls_ = 0;
    std::chrono::steady_clock::time_point idle_since_;
};

/// Calls test(&done, &moved), which returns a Status, until it is done. TIMEOUT, naming `what`, where peers don't
/// answer: nothing has moved for so long.
template <typename Test>
Status wait_until_done(const char* what, const Patience& patience, const Test& test) {
    Waiter waiter(patience);
    for (;;) {
        bool done = false;
        bool moved = false;
        ONEBIT_RETURN_IF_ERROR(test(&done, &moved));
        if (done) return {};
        if (moved) {
            waiter.progress();
        } else if (!waiter.keep_waiting()) {
            return waiter.failure(what);
        }
    }
}

} // namespace onebit
