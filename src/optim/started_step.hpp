// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "core/fiber.hpp"
#include "core/status.hpp"

namespace onebit {

/// A step that runs a slice at a time. It is the same step as one that a caller waits for, but on a fiber: at a wait
/// for peers, and after a slice of work, the fiber returns to the call that moves it on.
class StartedStep {
  public:
    /// What makes a step, unless this rank refuses it for a reason.
    using Step = std::function<Status(const Status& refusal)>;

    explicit StartedStep(Step step) : step_(std::move(step)) {}

    /// It has been started, and nobody has been told how it ended.
    bool open() const { return open_; }
    /// It has been started and has not ended.
    bool under_way() const { return fiber_ != nullptr && fiber_->running(); }

    /// Does no work of the step yet. Where there is no memory for the fiber, the step is refused, and has ended.
    void start() {
        open_ = true;
        const Status ready = catch_exceptions([this] {
            if (fiber_ == nullptr) fiber_ = std::make_unique<Fiber>();
            return Status();
        });
        if (ready.ok()) {
            fiber_->begin([](void* self) { static_cast<StartedStep*>(self)->run({}); }, this);
        } else {
            run(ready);
        }
    }
    void move_on() {
        if (under_way()) fiber_->resume();
    }
    /// Waits as the step itself would.
    void finish() {
        if (under_way()) fiber_->finish();
    }
    /// How the step ended.
    Status tell() {
        open_ = false;
        return std::exchange(end_, Status());
    }

  private:
    void run(const Status& refusal) {
        end_ = catch_exceptions([&] { return step_(refusal); });
    }

    Step step_;
    std::unique_ptr<Fiber> fiber_; ///< from the first start on
    bool open_ = false;
    Status end_;
};

} // namespace onebit
