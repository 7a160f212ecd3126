// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "core/fiber.hpp"
#include "core/status.hpp"

namespace onebit {

/// A step that goes on a slice at a time. It is the step that a caller waits for, on a fiber: what waits for peers in
/// it, and what has done a slice of work, goes back to the call that moves it on.
class StartedStep {
  public:
    explicit StartedStep(std::function<Status()> step) : step_(std::move(step)) {}

    /// It has been started, and nobody has been told how it ended.
    bool open() const { return open_; }
    /// It has been started and has not ended.
    bool under_way() const { return fiber_.running(); }

    /// Nothing of it is done yet.
    void start() {
        open_ = true;
        fiber_.begin(
            [](void* self) {
                auto* const started = static_cast<StartedStep*>(self);
                started->end_ = catch_exceptions(started->step_);
            },
            this);
    }
    void move_on() {
        if (under_way()) fiber_.resume();
    }
    /// Waits as the step itself would.
    void finish() { fiber_.finish(); }
    /// How it ended.
    Status tell() {
        open_ = false;
        return std::exchange(end_, Status());
    }

  private:
    std::function<Status()> step_;
    Fiber fiber_;
    bool open_ = false;
    Status end_;
};

} // namespace onebit
