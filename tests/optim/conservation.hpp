// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// An optimizer's exchange loses nothing: its input is what it delivers plus what it keeps as error.
#pragma once

#include <cmath>
#include <vector>

#include "support/training.hpp"

namespace onebit_test {

// With beta1 = 0 the exchange's input are the gradients and its output is the momentum. `owners`: how many ranks have
// a worker error for each element. A kind that freezes does so after the first step.
inline void expect_nothing_lost(onebit_comm_t comm, Setup setup, int owners, RankLog& log) {
    constexpr std::size_t count = 333;
    constexpr int steps = 200;
    setup.sizes = {count};
    setup.config.beta1 = 0;
    setup.config.compressed = ONEBIT_COMPRESSED_MOMENTA;
    const bool warms_up = freezes(setup.config.kind);
    if (warms_up) {
        setup.config.freeze_step = 1;
        setup.config.follow_interval = ONEBIT_FOLLOW_NEVER;
    }
    Training training(comm, setup, log);
    const auto gradient = [](int rank, std::uint64_t t) { return make_data(Kind::gaussian, count, 21, rank, t); };
    if (warms_up) training.step(gradient(log.rank(), 0));
    std::vector<double> balance(count, 0.0);
    double largest = 0;
    const auto take = [&](const std::vector<float>& values, int divisor) {
        for (std::size_t i = 0; i < count; ++i) {
            balance[i] -= static_cast<double>(values[i]) / divisor;
            largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
        }
    };
    std::vector<float> momentum(count);
    for (std::uint64_t t = 1; t <= steps; ++t) {
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> values = gradient(r, t);
            for (std::size_t i = 0; i < count; ++i) balance[i] += static_cast<double>(values[i]) / log.size();
        }
        training.step(gradient(log.rank(), t));
        ONEBIT_EXPECT_OK(log, onebit_optimizer_get_state(training.get(), 0, ONEBIT_STATE_EXP_AVG, momentum.data()));
        take(momentum, 1);
    }
    const OptimizerErrors errors = training.errors();
    for (const auto& worker : log.gather_floats(errors.worker)) take(worker, owners);
    for (const auto& server : log.gather_floats(errors.server)) take(server, 1);
    expect_balanced(log, balance, steps, largest);
    ONEBIT_EXPECT(log, largest > 0.1);
}

} // namespace onebit_test
