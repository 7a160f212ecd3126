// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/dense.hpp"

#include <utility>

namespace onebit {

DenseAllreduce::DenseAllreduce(std::unique_ptr<Arithmetic> arithmetic, int ranks, std::size_t count)
    : arithmetic_(std::move(arithmetic)), count_(count), averaging_(ranks) {
    stages_ = {
        {"start the sum", [this](Step* step) { return start_sum(step); }},
        {"finish the sum", [this](Step* step) { return finish_sum(step); }},
        {"scale", [this](Step* step) { return scale(step); }},
    };
}

Status DenseAllreduce::create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count,
                              std::unique_ptr<Algorithm>* algorithm) {
    std::unique_ptr<DenseAllreduce> made(new DenseAllreduce(std::move(arithmetic), transport.size(), count));
    ONEBIT_RETURN_IF_ERROR(transport.plan_sum(count, &made->sum_));
    *algorithm = std::move(made);
    return {};
}

Status DenseAllreduce::start_sum(Step* step) {
    *step = Step::kDone;
    if (!averages()) return sum_->start(operands_.float_input(), operands_.float_output());
    arithmetic_->multiply(operands_.float_input(), averaging_.before, count_, operands_.float_output());
    ONEBIT_RETURN_IF_ERROR(arithmetic_->failure());
    return sum_->start(operands_.float_output(), operands_.float_output());
}

Status DenseAllreduce::finish_sum(Step* step) {
    return wait_for(*sum_, step);
}

Status DenseAllreduce::scale(Step* step) {
    *step = Step::kDone;
    if (!averages() || averaging_.after == 1) return {};
    arithmetic_->multiply(operands_.float_output(), averaging_.after, count_, operands_.float_output());
    return arithmetic_->failure();
}

} // namespace onebit
