// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace onebit {

/// A function that can stop in its middle and be continued later, by any thread. It runs on a stack of its own, on the
/// thread that resumes it, until it comes to a pause(). So straight-line code with waits is written once, and runs both
/// for a caller that waits and for a caller that doesn't.
///
/// The function may hold nothing of a thread's across a pause: no lock, no exception that is being handled, no address
/// of a thread-local variable. Used by one thread at a time.
class Fiber {
  public:
    using Body = void (*)(void* argument);

    /// Reserves the stack. Only its used part takes memory. std::bad_alloc where there is no memory.
    Fiber();
    /// Only for a fiber that has ended, or never began.
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// resume() runs body(argument), which must not throw. Only after the last body has ended.
    void begin(Body body, void* argument);
    /// Whether a body has begun and not ended yet.
    bool running() const;
    /// Runs to the next pause, or to the end.
    void resume();
    /// Runs to the end. Waits block, as if there were no fiber.
    void finish();

    /// Whether the caller is on a fiber that pause() stops.
    static bool may_pause();
    /// On a fiber that may pause: stops here, goes on with the next resume() and returns true. Else returns false at
    /// once.
    static bool pause();

  private:
    struct Stack;
    std::unique_ptr<Stack> stack_;
};

} // namespace onebit
