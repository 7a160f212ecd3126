// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "optim/freeze.hpp"

namespace onebit {
namespace {

TEST_CASE("an automatic freeze that doesn't come is overdue once, and knows what it waits for", "[freeze]") {
    const std::uint64_t lr_warmup = 7;
    AutomaticFreeze rule(0.9, lr_warmup); // a window of 10 steps
    int overdue = 0;
    double norm = 1;
    for (std::uint64_t step = 1; step <= 300; ++step) {
        norm *= 0.9; // never settles
        CHECK_FALSE(rule.observe(step, norm));
        if (!rule.is_overdue(step)) continue;
        ++overdue;
        CHECK(step == lr_warmup + 100);
        CHECK(rule.ratio() == Approx(0.3486784401)); // 0.9^10
    }
    CHECK(overdue == 1);
}

TEST_CASE("one outlier in the variance delays an automatic freeze and doesn't prevent it", "[freeze]") {
    AutomaticFreeze rule(0.9, 0);
    double variance = 1;
    std::uint64_t frozen = 0;
    for (std::uint64_t step = 1; step <= 2000 && frozen == 0; ++step) {
        const double square = step == 5 ? 3.4e38 : 1; // the largest that a step takes
        variance = 0.9 * variance + 0.1 * square;
        if (rule.observe(step, variance)) frozen = step;
    }
    CHECK(frozen > 100);
    CHECK(frozen < 2000);
}

} // namespace
} // namespace onebit
