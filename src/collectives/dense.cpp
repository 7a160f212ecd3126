// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/dense.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "core/partition.hpp"

namespace onebit {

DenseAllreduce::DenseAllreduce(int ranks, std::size_t count, unsigned threads)
    : count_(count), share_(1.0F / static_cast<float>(ranks)), threads_(threads) {
    stages_ = {
        {"start the sum", [this](Step* step) { return start_sum(step); }},
        {"finish the sum", [this](Step* step) { return finish_sum(step); }},
        {"divide", [this](Step* step) { return divide(step); }},
    };
}

Status DenseAllreduce::create(Transport& transport, std::size_t count, unsigned threads,
                              std::unique_ptr<DenseAllreduce>* algorithm) {
    std::unique_ptr<DenseAllreduce> made(new DenseAllreduce(transport.size(), count, threads));
    ONEBIT_RETURN_IF_ERROR(transport.plan_sum(count, &made->sum_));
    *algorithm = std::move(made);
    return {};
}

Status DenseAllreduce::start_sum(Step* step) {
    *step = Step::kDone;
    return sum_->start(operands_.input, operands_.output, operands_.may_block);
}

Status DenseAllreduce::finish_sum(Step* step) {
    return wait_for(*sum_, step);
}

Status DenseAllreduce::divide(Step* step) {
    *step = Step::kDone;
    if (share_ == 1.0F || operands_.sum_only) return {};
    parallel_for(0, ceil_divide(count_, kBlockElements), threads_, [this](std::size_t block) {
        float* const output = operands_.output;
        const std::size_t end = std::min((block + 1) * kBlockElements, count_);
        for (std::size_t i = block * kBlockElements; i < end; ++i) output[i] *= share_;
    });
    return {};
}

GatheredAllreduce::GatheredAllreduce(Agreement& agreement, std::size_t count, int ranks)
    : agreement_(agreement), count_(count), ranks_(static_cast<std::size_t>(ranks)) {
    stage_ = {"add", [this](Step* step) {
                  add();
                  *step = Step::kDone;
                  return Status();
              }};
}

void GatheredAllreduce::add() {
    float* const output = operands_.output;
    std::copy_n(agreement_.payload(0), count_, output);
    for (std::size_t r = 1; r < ranks_; ++r) {
        const float* const values = agreement_.payload(r);
        for (std::size_t i = 0; i < count_; ++i) output[i] += values[i];
    }
    const float share = operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(ranks_);
    for (std::size_t i = 0; i < count_; ++i) output[i] *= share;
}

} // namespace onebit
