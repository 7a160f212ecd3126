// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Tensors that become ready in some order, for optimizers with buckets.
#pragma once

#include <numeric>
#include <random>

#include "support/training.hpp"

namespace onebit_test {

using Order = std::vector<std::size_t>; // of tensors

inline Order forwards(const Setup& setup) {
    Order order(setup.sizes.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
}

// An order that differs between steps and ranks, and sometimes lacks some tensors.
inline Order shuffled(const Setup& setup, int rank, std::uint64_t t) {
    Order order = forwards(setup);
    std::mt19937 random(static_cast<unsigned>(100 * t) + static_cast<unsigned>(rank));
    std::shuffle(order.begin(), order.end(), random);
    if (t % 3 != 0) order.resize(random() % (order.size() + 1));
    return order;
}

inline void announce(Training& training, const Order& order, RankLog& log) {
    for (const std::size_t k : order) ONEBIT_EXPECT_OK(log, onebit_optimizer_grad_ready(training.get(), k));
}

// A step in which the tensors become ready in this order.
inline void step(Training& training, const std::vector<float>& gradient, const Order& order, RankLog& log) {
    training.set_gradients(gradient);
    announce(training, order, log);
    ONEBIT_EXPECT_OK(log, onebit_optimizer_step(training.get()));
}

// In eighths: their sum over the ranks is exact in any order. Without buckets MPI chooses the order.
inline Gradient in_eighths(Gradient inner) {
    return [inner = std::move(inner)](int rank, std::uint64_t t) {
        std::vector<float> values = inner(rank, t);
        for (float& value : values) value = std::round(value * 8) / 8;
        return values;
    };
}

} // namespace onebit_test
