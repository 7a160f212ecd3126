// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
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

/// Why a wait has ended without success: TRANSPORT with the abort's reason, or TIMEOUT, naming `what` was waited for.
inline Status why_not_waited(const char* what, const Patience& patience) {
    if (patience.aborted()) return patience.abort_switch->why();
    return Status::error(ONEBIT_ERROR_TIMEOUT, "%s: no answer from a peer for %g seconds (ONEBIT_TIMEOUT)", what,
                         patience.timeout);
}

/// How long consecutive looks have found nothing, where the program decides when to look. The program's own work
/// between two looks counts as a second at most.
class VainLooks {
  public:
    void restart() { looked_ = false; }

    /// To be called after each look that found nothing. Whether looks have found nothing for so many seconds; 0: never.
    bool last_for(double seconds) {
        if (seconds <= 0) return false;
        const auto now = std::chrono::steady_clock::now();
        const std::chrono::duration<double> gap = now - latest_;
        lasted_ = looked_ ? lasted_ + std::min(gap.count(), 1.0) : 0;
        latest_ = now;
        looked_ = true;
        return lasted_ >= seconds;
    }

  private:
    bool looked_ = false;
    double lasted_ = 0; ///< seconds
    std::chrono::steady_clock::time_point latest_;
};

/// Polls for a while, then yields the core between two polls, because there may be more ranks than cores. Gives up
/// after `patience.timeout` seconds without progress, or when the communicator is aborted. On a fiber, pauses after
/// each look instead, and counts the time as VainLooks does.
class Waiter {
  public:
    explicit Waiter(const Patience& patience) : patience_(patience) {}

    void progress() {
        idle_polls_ = 0;
        looks_.restart();
        (void)Fiber::pause();
    }

    /// To be called after each look that found nothing. False once waiting is useless: failure() says why.
    [[nodiscard]] bool keep_waiting() {
        constexpr int kPollsBeforeYield = 64;
        constexpr int kPollsBetweenClocks = 256;
        if (Fiber::pause()) {
            idle_polls_ = 0;
            return !patience_.aborted() && !looks_.last_for(patience_.timeout);
        }
        if (idle_polls_++ < kPollsBeforeYield) return true;
        sched_yield();
        if (patience_.aborted()) return false;
        if (patience_.timeout <= 0 || idle_polls_ % kPollsBetweenClocks != 0) return true;
        const auto now = std::chrono::steady_clock::now();
        if (idle_polls_ == kPollsBetweenClocks) idle_since_ = now;
        return std::chrono::duration<double>(now - idle_since_).count() < patience_.timeout;
    }

    /// As why_not_waited says it.
    Status failure(const char* what) const { return why_not_waited(what, patience_); }

  private:
    const Patience& patience_;
    std::int64_t idle_polls_ = 0;
    std::chrono::steady_clock::time_point idle_since_;
    VainLooks looks_; ///< on a fiber
};

/// Calls test(&done, &moved), which returns a Status, until it is done. TIMEOUT, naming `what`, where peers don't
/// answer: nothing has moved for `patience.timeout`.
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
