// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "optim/freeze.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

onebit_optimizer_config_t config_of(std::uint64_t freeze_step, std::uint64_t lr_warmup_steps = 0) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 0.1);
    config.freeze_step = freeze_step;
    config.freeze_window = 256;
    config.freeze_band = 0.9;
    config.lr_warmup_steps = lr_warmup_steps;
    return config;
}

/// One tensor's second moment, fed with squares.
struct Variance {
    double beta2;
    double value = 0;
    std::uint64_t updates = 0;
    FreezeQuantity take(double square, std::size_t tensor = 0) {
        value = beta2 * value + (1 - beta2) * square;
        const double correction = 1 / (1 - std::pow(beta2, static_cast<double>(++updates)));
        return {ONEBIT_FREEZE_WAIT_VARIANCE, tensor, value, correction};
    }
};

using Rate = std::function<double(std::uint64_t step)>;

/// Runs a rule over tensors whose squares are square[i](step). Returns the step after which it freezes; 0: after none.
std::uint64_t frozen_after(
    FreezeRule& rule, double beta2, std::uint64_t last,
    const std::vector<std::function<double(std::uint64_t)>>& squares,
    const Rate& rate = [](std::uint64_t) { return 0.1; }) {
    std::vector<Variance> variances(squares.size(), Variance{beta2});
    for (std::uint64_t step = 1; step <= last; ++step) {
        std::vector<FreezeQuantity> seen;
        for (std::size_t i = 0; i < squares.size(); ++i) seen.push_back(variances[i].take(squares[i](step), i));
        const std::vector<double> rates = {rate(step)};
        if (rule.looks_at(step) && rule.observe(step, rates, seen)) return step;
    }
    return 0;
}

std::unique_ptr<FreezeRule> settled_rule(std::size_t tensors = 1, std::uint64_t lr_warmup_steps = 0) {
    return make_freeze_rule(config_of(ONEBIT_FREEZE_AUTO, lr_warmup_steps), 0.999, 1, tensors);
}

const auto kSteady = [](std::uint64_t) { return 1.0; };

TEST_CASE("a steady variance is frozen once it is full, not before the learning rate's warm-up", "[freeze]") {
    CHECK(frozen_after(*settled_rule(), 0.999, 5000, {kSteady}) == 1008); // the first look from 1000 on
    CHECK(frozen_after(*settled_rule(1, 3000), 0.999, 5000, {kSteady}) == 3008);
}

TEST_CASE("a freeze waits for a window without a new highest learning rate, told or not", "[freeze]") {
    const Rate warmup = [](std::uint64_t step) { return 1e-3 * std::min(1.0, static_cast<double>(step) / 2000); };
    CHECK(frozen_after(*settled_rule(), 0.999, 5000, {kSteady}, warmup) == 2256);
    const Rate falling = [](std::uint64_t step) { return 1.0 / static_cast<double>(step); };
    CHECK(frozen_after(*settled_rule(), 0.999, 5000, {kSteady}, falling) == 1008);
}

TEST_CASE("a variance that changes all the time is never frozen, and the rule says which", "[freeze]") {
    for (const double time : {500.0, 1000.0}) { // the paper's rule freezes both on the way down
        const auto fading = [&](std::uint64_t step) { return std::exp(-2 * static_cast<double>(step) / time); };
        const std::unique_ptr<FreezeRule> rule = settled_rule(3);
        CHECK(frozen_after(*rule, 0.999, 5000, {kSteady, fading, kSteady}) == 0);
        CHECK(rule->wait().what == ONEBIT_FREEZE_WAIT_VARIANCE);
        CHECK(rule->wait().tensor == 1);
        CHECK(rule->wait().ratio == Approx(std::exp(-0.256)).epsilon(0.02)); // 0.999^256: v can't fall any faster
        const std::unique_ptr<FreezeRule> paper = make_freeze_rule(config_of(ONEBIT_FREEZE_PAPER), 0.999, 1, 1);
        CHECK(frozen_after(*paper, 0.999, 5000, {fading}) == (time == 500 ? 1140 : 1297));
    }
}

TEST_CASE("a rare tensor keeps the others waiting until it has settled", "[freeze]") {
    const auto late = [](std::uint64_t step) { return step < 1500 ? 1.0 : 3.0; };
    const std::unique_ptr<FreezeRule> rule = settled_rule(2);
    // The others freeze at 1008. Alone this one would freeze, too, which would be wrong.
    CHECK(frozen_after(*rule, 0.999, 1400, {kSteady, [](std::uint64_t t) { return t < 900 ? 1.0 : 3.0; }}) == 0);
    const std::unique_ptr<FreezeRule> later = settled_rule(2, 1600);
    const std::uint64_t step = frozen_after(*later, 0.999, 10000, {kSteady, late});
    const auto v = [](double t) { // corrected
        const double lately = 1 - std::pow(0.999, t - 1499);
        const double all = 1 - std::pow(0.999, t);
        return (all - lately + 3 * lately) / all;
    };
    const double first = static_cast<double>(step) - 15 * 16; // of 16 looks in a row
    CHECK(v(first) / v(first - 256) <= 1 / 0.9);
    CHECK(v(first - 16) / v(first - 272) > 1 / 0.9);
}

TEST_CASE("the paper's rule is there by its name, and no other number of a step asks for a rule", "[freeze]") {
    const std::unique_ptr<FreezeRule> paper = make_freeze_rule(config_of(ONEBIT_FREEZE_PAPER, 3700), 0.999, 1, 1);
    CHECK(frozen_after(*paper, 0.999, 5000, {kSteady}) == 3783); // v isn't corrected: it counts as growing until then
    CHECK(make_freeze_rule(config_of(ONEBIT_FREEZE_NEVER), 0.999, 1, 1) == nullptr);
    CHECK(make_freeze_rule(config_of(1), 0.999, 1, 1) == nullptr);
}

TEST_CASE("a freeze that doesn't come is reported after 10 windows, 20, 40, ...", "[freeze]") {
    const std::unique_ptr<FreezeRule> rule = settled_rule(1, 7);
    std::vector<std::uint64_t> reported;
    for (std::uint64_t step = 1; step <= 12000; ++step) {
        if (rule->is_overdue(step)) reported.push_back(step);
    }
    CHECK(reported == std::vector<std::uint64_t>{7 + 2560, 7 + 5120, 7 + 10240});
}

TEST_CASE("tensors without gradients have nothing to settle", "[freeze]") {
    const auto none = [](std::uint64_t) { return 0.0; };
    CHECK(frozen_after(*settled_rule(2), 0.999, 5000, {kSteady, none}) == 1008);
    const auto at_last = [](std::uint64_t step) { return step < 1000 ? 0.0 : 1.0; };
    CHECK(frozen_after(*settled_rule(2), 0.999, 1300, {kSteady, at_last}) == 0);
}

TEST_CASE("what another rule, or one with other settings, remembers is forgotten", "[freeze]") {
    const auto remembered = [](const onebit_optimizer_config_t& config) {
        const std::unique_ptr<FreezeRule> rule = make_freeze_rule(config, 0.999, 1, 1);
        CHECK(frozen_after(*rule, 0.999, 900, {kSteady}) == 0);
        return rule->history();
    };
    const onebit_optimizer_config_t usual = config_of(ONEBIT_FREEZE_AUTO);
    onebit_optimizer_config_t longer = usual;
    longer.freeze_window = 4096; // as many looks
    onebit_optimizer_config_t narrower = usual;
    narrower.freeze_band = 0.99;
    for (const onebit_optimizer_config_t& other : {longer, narrower}) {
        const std::unique_ptr<FreezeRule> rule = make_freeze_rule(other, 0.999, 1, 1);
        REQUIRE(rule->history().size() == remembered(usual).size());
        const std::uint64_t anew = frozen_after(*rule, 0.999, 20000, {kSteady});
        rule->history() = remembered(usual);
        CHECK(frozen_after(*rule, 0.999, 20000, {kSteady}) == anew);
    }
}

TEST_CASE("a variance that isn't corrected must be nearly full", "[freeze]") {
    onebit_optimizer_config_t config = config_of(ONEBIT_FREEZE_AUTO);
    config.bias_correction = 0;
    CHECK(frozen_after(*make_freeze_rule(config, 0.999, 1, 1), 0.999, 5000, {kSteady}) == 3008);
}

TEST_CASE("a norm that is no number never settles", "[freeze]") {
    const auto nan = [](std::uint64_t) { return std::numeric_limits<double>::quiet_NaN(); };
    CHECK(frozen_after(*settled_rule(2), 0.999, 3000, {kSteady, nan}) == 0);
}

TEST_CASE("one outlier in the variance delays a freeze and doesn't prevent it", "[freeze]") {
    onebit_optimizer_config_t config = config_of(ONEBIT_FREEZE_AUTO);
    config.freeze_window = 4;
    const std::unique_ptr<FreezeRule> rule = make_freeze_rule(config, 0.9, 1, 1);
    const auto outlier = [](std::uint64_t step) { return step == 5 ? 3.4e38 : 1.0; }; // the largest that a step takes
    const std::uint64_t step = frozen_after(*rule, 0.9, 2000, {outlier});
    CHECK(step > 100);
    CHECK(step < 2000);
}

} // namespace
} // namespace onebit
