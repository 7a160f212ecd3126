// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace onebit {

/// A function that can stop in its middle and be gone on with later, by any thread: it runs on a stack of its own, on
/// the thread that resumes it, until it comes to a pause(). So straight-line code with waits in it is written once, and
/// runs both for a caller that waits and for one that doesn't.
///
/// Nothing of a thread's own may be held across a pause: no lock, no exception that is being handled, no address of a
/// thread-local variable. Used by one thread at a time.
class Fiber {
  public:
    using Body = void (*)(void* argument);

    /// Reserves the stack. Only what is used of it takes memory. std::bad_alloc where there is none.
    Fiber();
    /// Of one that has ended, or never began.
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// body(argument) is what resume() runs. It must not throw. After the last one has ended.
    void begin(Body body, void* argument);
    /// Whether what was begun has not ended yet.
    bool running() const;
    /// Runs to the next pause, or to the end.
    void resume();
    /// Runs to the end: what waits does so as if there were no fiber.
    void finish();

    /// Whether this is a fiber that pause() stops.
    static bool may_pause();
    /// On a fiber that may pause: stops here, goes on with the next resume() and returns true. Else returns false at
    /// once.
    static bool pause();

  private:
    struct Stack;
    std::unique_ptr<Stack> stack_;
};

} // namespace onebit
