// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/dense.hpp"

#include <utility>

namespace onebit {

DenseAllreduce::DenseAllreduce(std::unique_ptr<Arithmetic> arithmetic, int ranks, std::size_t count)
    : arithmetic_(std::move(arithmetic)), count_(count), share_(1.0F / static_cast<float>(ranks)) {
    stages_ = {
        {"start the sum", [this](Step* step) { return start_sum(step); }},
        {"finish the sum", [this](Step* step) { return finish_sum(step); }},
        {"divide", [this](Step* step) { return divide(step); }},
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
    return sum_->start(operands_.input, operands_.output);
}

Status DenseAllreduce::finish_sum(Step* step) {
    return wait_for(*sum_, step);
}

Status DenseAllreduce::divide(Step* step) {
    *step = Step::kDone;
    if (share_ == 1.0F || operands_.sum_only) return {};
    arithmetic_->multiply(operands_.output, share_, count_, operands_.output);
    return arithmetic_->failure();
}

} // namespace onebit
