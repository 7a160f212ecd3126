// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include "core/status.hpp"

namespace onebit {

/// What a stage says when it returns.
enum class Step {
    kDone,     ///< go on with the next stage
    kAgain,    ///< a slice is done; there is more to do in this stage at once
    kWait,     ///< nothing to do until a peer's message comes
    kInStream, ///< all is in a GPU's stream; what is left is to wait until it is done, and to learn how it ended
};

inline bool waits(Step step) {
    return step == Step::kWait || step == Step::kInStream;
}

/// What work of a handle goes on between two calls of the program.
enum class UnderWay {
    kNothing,
    kExchange,  ///< of a step that has not been asked for yet
    kOperation, ///< it was started, and how it ends is still to be told
};

/// A named stage of an algorithm. Called until it says kDone. It never blocks and never allocates.
struct Stage {
    const char* name;
    std::function<Status(Step*)> advance;
};

/// The body of a stage that waits for a started operation, which has test(&done).
template <typename Operation>
Status wait_for(Operation& operation, Step* step) {
    bool done = false;
    ONEBIT_RETURN_IF_ERROR(operation.test(&done));
    *step = done ? Step::kDone : Step::kWait;
    return {};
}

/// The stages that start an operation, which has start(), and wait for it. The operation must outlive the stages.
template <typename Operation>
Stage start_stage(const char* name, Operation& operation) {
    return {name, [&operation](Step* step) {
                *step = Step::kDone;
                return operation.start();
            }};
}
template <typename Operation>
Stage wait_stage(const char* name, Operation& operation) {
    return {name, [&operation](Step* step) { return wait_for(operation, step); }};
}

/// Advances straight-line stages. run, start/test/wait and (later) stream-ordered execution are three ways of calling
/// this one function, never three implementations of an algorithm.
class StageRunner {
  public:
    void start(std::span<const Stage> stages) {
        stages_ = stages;
        current_ = 0;
    }

    bool finished() const { return current_ == stages_.size(); }
    const char* stage_name() const { return finished() ? "finished" : stages_[current_].name; }

    /// Goes on until a slice is done, a peer must be waited for, or all stages are done. *step says which.
    Status advance(Step* step) {
        *step = Step::kDone;
        while (!finished()) {
            ONEBIT_RETURN_IF_ERROR(stages_[current_].advance(step));
            if (*step != Step::kDone) return {};
            ++current_;
        }
        return {};
    }

  private:
    std::span<const Stage> stages_;
    std::size_t current_ = 0;
};

} // namespace onebit
