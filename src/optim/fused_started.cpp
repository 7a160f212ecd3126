// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A step of FusedOptimizer that no caller waits in: it is step(), on a fiber (core/fiber.hpp).

#include <algorithm>

#include "optim/fused_optimizer.hpp"

namespace onebit {

Status FusedOptimizer::check_not_started() const {
    if (!started_->open()) return {};
    return Status::error(ONEBIT_ERROR_BUSY, "a started step is not finished: call onebit_optimizer_step_wait first");
}

Status FusedOptimizer::start() {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    ONEBIT_RETURN_IF_ERROR(settings_.backend->check_ready());
    started_->start();
    // Work must go into a stream in the same order on every rank, whichever step a caller tests.
    if (buckets_.front().allreduce->channel().is_stream_ordered()) {
        started_->finish();
    } else {
        started_->move_on();
    }
    return {};
}

Status FusedOptimizer::test(bool* done) {
    *done = !started_->open();
    if (*done) return {};
    ONEBIT_RETURN_IF_ERROR(settings_.backend->check_ready());
    started_->move_on();
    *done = !started_->under_way();
    return *done ? started_->tell() : Status();
}

Status FusedOptimizer::wait() {
    if (!started_->open()) return {};
    ONEBIT_RETURN_IF_ERROR(settings_.backend->check_ready());
    started_->finish();
    return started_->tell();
}

/// Moves nothing on while the stream is captured.
Status FusedOptimizer::move_on(bool* done) {
    if (settings_.backend->check_ready().ok()) {
        bool moved = false;
        started_->move_on();
        if (!started_->open()) (void)progress(&moved); // the next call reports an error
    }
    *done = started_->open() ? !started_->under_way() : !exchanges_go_on();
    return {};
}

UnderWay FusedOptimizer::under_way() const {
    if (started_->open()) return UnderWay::kOperation;
    return begun_ && exchanges_go_on() ? UnderWay::kExchange : UnderWay::kNothing;
}

/// A broken or aborted exchange doesn't go on, though it stays in flight for ever.
bool FusedOptimizer::exchanges_go_on() const {
    if (patience().aborted()) return false;
    return std::ranges::any_of(buckets_, [](const Bucket& bucket) {
        return bucket.allreduce->in_flight() && bucket.allreduce->broken().ok();
    });
}

/// Where the optimizer is broken or aborted, all that still waits in the step ends at once.
Status FusedOptimizer::prepare_to_be_destroyed() {
    if (check_usable().ok() && !patience().aborted()) return check_between_steps();
    started_->finish();
    return {};
}

} // namespace onebit
