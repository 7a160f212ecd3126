// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Adam and 1-bit Adam against the oracle, which runs freely beside the library. A sign within rounding of zero would
// send the two apart for good, so the data's seed is chosen, by the oracle alone, such that none is.
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr double clear_margin = 2e-5; // |c| / scale; some twenty steps of float rounding stay below a tenth of it

const Sizes& odd_sizes() {
    static const Sizes sizes = {33, 1, 127, 5, 64, 71};
    return sizes;
}

// Gaussian, of a magnitude that differs a hundredfold along the elements.
Gradient gaussian_gradient(std::size_t count, std::uint64_t seed) {
    return [count, seed](int rank, std::uint64_t step) {
        std::vector<float> gradient = make_data(Kind::gaussian, count, seed, rank, step);
        for (std::size_t i = 0; i < count; ++i)
            gradient[i] *= i / 40 % 3 == 0 ? 0.1f : (i / 40 % 3 == 1 ? 1.0f : 10.0f);
        return gradient;
    };
}

struct Plan {
    onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
    Sizes sizes = odd_sizes();
    std::uint64_t steps = 16;
    std::uint64_t freeze_by_hand = 0; // after this step; 0: not
    std::function<Gradient(std::uint64_t seed)> gradient = [](std::uint64_t seed) {
        return gaussian_gradient(total(odd_sizes()), seed);
    };
};

oracle::OnebitAdam make_oracle(const Plan& plan, int ranks) {
    const std::vector<float> start = initial_parameters(total(plan.sizes));
    const Mode mode{plan.config.scale, plan.config.group};
    oracle::OnebitAdam reference(oracle_config(plan.config), {start.begin(), start.end()}, ranks, mode.oracle_scale(),
                                 mode.oracle_group());
    if (plan.config.freeze_step == ONEBIT_FREEZE_AUTO) {
        reference.freeze_by_rule(plan.config.lr_warmup_steps);
    } else if (plan.config.freeze_step != ONEBIT_FREEZE_NEVER) {
        reference.freeze_at(plan.config.freeze_step);
    }
    return reference;
}

// The first seed for which no sign and no freeze hangs on rounding.
std::uint64_t clear_seed(const Plan& plan, int ranks, RankLog& log) {
    for (std::uint64_t seed = 1; seed < 200; ++seed) {
        oracle::OnebitAdam reference = make_oracle(plan, ranks);
        const Gradient gradient = plan.gradient(seed);
        for (std::uint64_t t = 1; t <= plan.steps; ++t) {
            reference.step(gradients_of_all(gradient, ranks, t));
            if (t == plan.freeze_by_hand) reference.freeze_now();
        }
        const double margin = *std::min_element(reference.sign_margin.begin(), reference.sign_margin.end());
        if (margin >= clear_margin && reference.rule_margin() >= 1e-4) return seed;
    }
    ONEBIT_EXPECT(log, !"no seed keeps clear of zero");
    return 1;
}

// Trains beside the oracle and compares every step; returns the oracle at the end.
oracle::OnebitAdam train_beside_oracle(onebit_comm_t comm, RankLog& log, const Plan& plan) {
    const Gradient gradient = plan.gradient(clear_seed(plan, log.size(), log));
    oracle::OnebitAdam reference = make_oracle(plan, log.size());
    Training training(comm, plan.config, plan.sizes, log);
    ParameterCheck check(reference.adam.x, plan.config.lr);
    for (std::uint64_t t = 1; t <= plan.steps; ++t) {
        reference.step(gradients_of_all(gradient, log.size(), t));
        training.step(gradient(log.rank(), t));
        if (t == plan.freeze_by_hand) {
            reference.freeze_now();
            ONEBIT_EXPECT_OK(log, onebit_optimizer_freeze(training.get()));
        }
        check.check(log, training.parameters(), reference.adam.x, {}, 0, __LINE__);
        const onebit_optimizer_info_t info = training.info();
        ONEBIT_EXPECT(log, info.steps == t);
        ONEBIT_EXPECT(log, info.freeze_step == reference.freeze_step);
        ONEBIT_EXPECT(log, (info.frozen == 1) == reference.frozen());
        ONEBIT_EXPECT(log, info.masked == reference.masked());
        ONEBIT_EXPECT(log, info.count == total(plan.sizes));
    }
    return reference;
}

void for_bias_and_decay(Plan plan, RankLog& log, const std::function<void(const Plan&)>& body) {
    for (int bias : {0, 1}) {
        for (double decay : {0.0, 0.1}) {
            plan.config.bias_correction = bias;
            plan.config.weight_decay = decay;
            log.context("bias correction " + std::to_string(bias) + ", weight decay " + std::to_string(decay));
            body(plan);
        }
    }
}

} // namespace

TEST_CASE("Adam equals the oracle", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Plan plan;
        plan.config = optimizer_config(ONEBIT_OPTIMIZER_ADAM);
        for_bias_and_decay(plan, log, [&](const Plan& each) { train_beside_oracle(comm, log, each); });
        plan.config.beta1 = 0; // the ends of the ranges
        plan.config.beta2 = 0;
        plan.config.eps = 0.1;
        plan.config.freeze_step = ONEBIT_FREEZE_NEVER;
        log.context("betas 0");
        train_beside_oracle(comm, log, plan);
    });
}

TEST_CASE("1-bit Adam equals the oracle: given freeze step", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Plan plan;
        plan.config.freeze_step = 6;
        for_bias_and_decay(plan, log, [&](const Plan& each) {
            ONEBIT_EXPECT(log, train_beside_oracle(comm, log, each).freeze_step == 6);
        });
        plan.config.freeze_step = 1;
        plan.steps = 6;
        log.context("frozen after the first step");
        train_beside_oracle(comm, log, plan);
    });
}

TEST_CASE("1-bit Adam equals the oracle: every scale and group", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : all_modes()) {
            log.context(mode.name());
            Plan plan;
            plan.config.freeze_step = 5;
            plan.config.scale = mode.scale;
            plan.config.group = mode.group;
            plan.steps = 12;
            train_beside_oracle(comm, log, plan);
        }
    });
}

TEST_CASE("1-bit Adam equals the oracle: frozen by hand", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Plan plan;
        plan.freeze_by_hand = 7;
        plan.config.eps = 0.05; // large enough that its place in the formula matters
        for_bias_and_decay(plan, log, [&](const Plan& each) { train_beside_oracle(comm, log, each); });
        plan.config.freeze_step = 1000; // by hand before the given step
        plan.freeze_by_hand = 3;
        plan.steps = 8;
        train_beside_oracle(comm, log, plan);
    });
}

TEST_CASE("1-bit Adam equals the oracle: frozen by the rule", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Plan plan;
        plan.config.freeze_step = ONEBIT_FREEZE_AUTO;
        plan.config.beta2 = 0.9; // delta = 10
        plan.steps = 50;
        log.context("steady gradients");
        const std::uint64_t steady = train_beside_oracle(comm, log, plan).freeze_step;
        ONEBIT_EXPECT(log, steady > 10 && steady < 50);

        // Gradients that grow again until step 60, so that the ratio is far from 1 there: whether the rule is first
        // asked at step 60 or 61 makes no difference, but a rule that doesn't wait for step 60 freezes too early.
        log.context("learning-rate warm-up");
        plan.config.lr_warmup_steps = 60;
        plan.steps = 110;
        plan.gradient = [](std::uint64_t seed) {
            return [inner = gaussian_gradient(total(odd_sizes()), seed)](int rank, std::uint64_t t) {
                std::vector<float> gradient = inner(rank, t);
                const double growth = t <= 52 ? 0.1 : std::min(1.0, 0.1 * static_cast<double>(t - 51));
                for (float& g : gradient) g = static_cast<float>(g * growth);
                return gradient;
            };
        };
        const std::uint64_t late = train_beside_oracle(comm, log, plan).freeze_step;
        ONEBIT_EXPECT(log, late > 61 && late < 110);
        ONEBIT_EXPECT(log, log.same_on_all(&late, sizeof late));
    });
}

TEST_CASE("1-bit Adam over many blocks", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_TENSOR}) {
            Plan plan;
            plan.sizes = {1, 4095, 33, static_cast<std::size_t>(log.size()) * 4096 + 500, 777};
            plan.config.freeze_step = 3;
            plan.config.group = group;
            plan.config.eps = 1e-3;
            log.context(group == ONEBIT_GROUP_BLOCK ? "block" : "tensor");
            const Gradient gradient = gaussian_gradient(total(plan.sizes), 3);
            oracle::OnebitAdam reference = make_oracle(plan, log.size());
            Training training(comm, plan.config, plan.sizes, log);
            ParameterCheck check(reference.adam.x, plan.config.lr);
            check.relative_tolerance(1e-3); // a sign that turned changes its block's scale a little
            std::size_t left_out = 0;
            for (std::uint64_t t = 1; t <= 6; ++t) {
                reference.step(gradients_of_all(gradient, log.size(), t));
                training.step(gradient(log.rank(), t));
                left_out = check.check(log, training.parameters(), reference.adam.x, reference.sign_margin,
                                       clear_margin, __LINE__);
            }
            ONEBIT_EXPECT(log, left_out < total(plan.sizes) / 500);
        }
    });
}

TEST_CASE("elements that never had a gradient are left alone", "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        // An embedding of 40 rows of 5 between two other tensors. Rows 30 to 39 are first touched after the freeze;
        // row 29 is touched by the last rank alone.
        constexpr std::size_t first = 37 + 30 * 5, end = 37 + 40 * 5, lonely = 37 + 29 * 5;
        Plan plan;
        plan.sizes = {37, 200, 51};
        plan.config.freeze_step = 5;
        plan.steps = 12;
        const int last = log.size() - 1;
        plan.gradient = [last](std::uint64_t seed) {
            return [inner = gaussian_gradient(288, seed), last](int rank, std::uint64_t t) {
                std::vector<float> gradient = inner(rank, t);
                if (t <= 5) std::fill(gradient.begin() + first, gradient.begin() + end, rank == 0 ? -0.0f : 0.0f);
                if (rank != last) std::fill(gradient.begin() + lonely, gradient.begin() + first, 0.0f);
                return gradient;
            };
        };
        const std::vector<float> start = initial_parameters(288);
        for (const Mode& mode : {all_modes()[1], default_mode()}) {
            for (double decay : {0.0, 0.1}) {
                log.context(mode.name() + ", weight decay " + std::to_string(decay));
                plan.config.weight_decay = decay;
                plan.config.scale = mode.scale;
                plan.config.group = mode.group;
                ONEBIT_EXPECT(log, train_beside_oracle(comm, log, plan).masked() == 50);

                Training training(comm, plan.config, plan.sizes, log);
                const Gradient gradient = plan.gradient(1);
                for (std::uint64_t t = 1; t <= plan.steps; ++t) training.step(gradient(log.rank(), t));
                ONEBIT_EXPECT(log, training.info().masked == 50);
                const std::vector<float> now = training.parameters();
                bool exact = true;
                for (std::size_t i = first; i < end; ++i) {
                    const double expected = start[i] * std::pow(1 - plan.config.lr * decay, 12);
                    const double tolerance = decay == 0 ? 0 : 12 * 1.2e-7 * std::fabs(expected);
                    exact = exact && std::fabs(now[i] - expected) <= tolerance;
                }
                ONEBIT_EXPECT(log, exact);
                ONEBIT_EXPECT(log, now[lonely] != start[lonely]);
            }
        }
    });
}

TEST_CASE("the learning rate can change from step to step, to zero too", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Plan plan;
        plan.config.freeze_step = 4;
        plan.steps = 9;
        plan.config.weight_decay = 0.01;
        const Gradient gradient = plan.gradient(clear_seed(plan, log.size(), log)); // lr has no part in the signs
        oracle::OnebitAdam reference = make_oracle(plan, log.size());
        Training training(comm, plan.config, plan.sizes, log);
        ParameterCheck check(reference.adam.x, plan.config.lr);
        for (std::uint64_t t = 1; t <= plan.steps; ++t) {
            const double lr = t % 3 == 0 ? 0 : 0.01 / static_cast<double>(t);
            reference.adam.config.lr = lr;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), lr));
            const std::vector<float> before = training.parameters();
            reference.step(gradients_of_all(gradient, log.size(), t));
            training.step(gradient(log.rank(), t));
            check.check(log, training.parameters(), reference.adam.x, {}, 0, __LINE__);
            ONEBIT_EXPECT(log, same_bits(before, training.parameters()) == (lr == 0));
        }
    });
}

TEST_CASE("threads change no bit; the compressed stage sends little", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {20000, 3, 9000};
        onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM);
        config.freeze_step = 2;
        config.threads = 1;
        Training one(comm, config, sizes, log);
        config.threads = 3;
        Training three(comm, config, sizes, log);
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        for (std::uint64_t t = 1; t <= 6; ++t) {
            one.step(gradient(log.rank(), t));
            three.step(gradient(log.rank(), t));
            ONEBIT_EXPECT(log, same_bits(one.parameters(), three.parameters()));
            if (t == 2) ONEBIT_EXPECT(log, one.info().compressed_bytes_sent == 0);
        }
        const onebit_optimizer_info_t info = one.info();
        const double peers = log.size() - 1, d = static_cast<double>(total(sizes));
        // Signs, a scale for each block begun, half a word of each chunk, 64 bytes for each peer; four steps.
        const double signs = 2 * peers / log.size() * d / 8;
        const double most = signs + 2 * peers * (4 * (d / log.size() / 4096 + 1) + 8) + 64 * peers;
        const double sent = static_cast<double>(info.compressed_bytes_sent);
        ONEBIT_EXPECT(log, sent <= 4 * most);
        ONEBIT_EXPECT(log, sent >= 4 * (signs - 8 * peers));
        ONEBIT_EXPECT(log, (info.warmup_bytes_sent == 0) == (log.size() == 1));
    });
}
