// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// When the variance freezes, which elements are masked from then on, and which errors are kept.
#include "support/beside_oracle.hpp"

using namespace onebit_test;

namespace {

const Sizes& odd_sizes() {
    static const Sizes sizes = {33, 1, 127, 5, 64, 71};
    return sizes;
}

// Trains until `steps`, frozen by the rule; returns the last warm-up step.
std::uint64_t frozen_by_rule(onebit_comm_t comm, RankLog& log, const Setup& setup, const Gradient& gradient,
                             std::uint64_t steps) {
    BesideOracle both(comm, setup, log);
    both.steps(gradient, 1, steps);
    ONEBIT_EXPECT(log, both.freezing->rule_margin() >= 1e-5); // else rounding decides; take other data
    const std::uint64_t step = both.training.info().freeze_step;
    ONEBIT_EXPECT(log, log.same_on_all(&step, sizeof step));
    return step;
}

// Gradients that grow again until step 60, so that the ratio is far from 1 there. It makes no difference whether the
// rule is first asked at step 60 or 61. A rule that doesn't wait for step 60 freezes too early.
Gradient growing_gradient() {
    return [inner = gaussian_gradient(total(odd_sizes()), 1)](int rank, std::uint64_t t) {
        std::vector<float> gradient = inner(rank, t);
        const double growth = t <= 52 ? 0.1 : std::min(1.0, 0.1 * static_cast<double>(t - 51));
        for (float& g : gradient) g = static_cast<float>(g * growth);
        return gradient;
    };
}

// An embedding of 40 rows of 5 between two other tensors. Rows 30 to 39 are first touched after the freeze, row 29 by
// the last rank alone, rows 20 to 24 from step 3 on.
constexpr std::size_t embedding = 37, embedding_count = 288;
constexpr std::size_t late_begin = embedding + 30 * 5, late_end = embedding + 40 * 5;
constexpr std::size_t lonely = embedding + 29 * 5, third = embedding + 20 * 5;

Gradient embedding_gradient(int ranks) {
    return [inner = gaussian_gradient(embedding_count, 1), ranks](int rank, std::uint64_t t) {
        std::vector<float> gradient = inner(rank, t);
        const auto set = [&](std::size_t begin, std::size_t end, float value) {
            std::fill(gradient.begin() + static_cast<std::ptrdiff_t>(begin),
                      gradient.begin() + static_cast<std::ptrdiff_t>(end), value);
        };
        if (t <= 6) set(late_begin, late_end, rank == 0 ? -0.0f : 0.0f);
        if (rank != ranks - 1) set(lonely, late_begin, 0.0f);
        if (t < 3) set(third, third + 25, 0.0f);
        return gradient;
    };
}

} // namespace

TEST_CASE("frozen by hand", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (std::uint64_t freeze_step : {ONEBIT_FREEZE_NEVER, std::uint64_t{1000}}) {
                for (std::uint64_t by_hand : {1, 4, 7}) { // 0/1 Adam: after exact rounds, and after a compressed one
                    log.context(name_of(kind) + " after step " + std::to_string(by_hand));
                    Setup setup{quick_config(kind), odd_sizes()};
                    setup.config.freeze_step = freeze_step;
                    setup.config.eps = 0.05;
                    setup.config.weight_decay = 0.1;
                    const Gradient gradient = gaussian_gradient(total(odd_sizes()), 1);
                    BesideOracle both(comm, setup, log);
                    both.steps(gradient, 1, by_hand);
                    both.freeze();
                    const onebit_optimizer_info_t info = both.training.info();
                    ONEBIT_EXPECT(log, info.frozen == 1 && info.freeze_step == by_hand && info.steps == by_hand);
                    both.steps(gradient, by_hand + 1, by_hand + 16);
                }
            }
        }
    });
}

TEST_CASE("frozen by the paper's rule", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            Setup setup{quick_config(kind), odd_sizes()};
            setup.config.freeze_step = ONEBIT_FREEZE_PAPER;
            setup.config.beta2 = 0.9;           // delta = 10
            setup.config.variance_updates = 25; // 0/1 Adam: exact rounds in each step, then in each second one
            log.context(name_of(kind) + ", steady gradients");
            const Gradient steady = gaussian_gradient(total(odd_sizes()), 1);
            const std::uint64_t step = frozen_by_rule(comm, log, setup, steady, 60);
            ONEBIT_EXPECT(log, step > 10 && step < 60);

            log.context(name_of(kind) + ", learning-rate warm-up");
            setup.config.lr_warmup_steps = 60;
            setup.config.variance_updates = 200;
            const std::uint64_t late = frozen_by_rule(comm, log, setup, growing_gradient(), 110);
            ONEBIT_EXPECT(log, late > 61 && late < 110);
        }
    });
}

TEST_CASE("frozen once all has settled", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (std::uint64_t window : {4, 33}) { // looked at after each step, and after each second one
                log.context(name_of(kind) + ", a window of " + std::to_string(window));
                const bool lamb = kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB; // whose parameters' norms must settle, too
                Setup setup{quick_config(kind, lamb ? 0.001 : 0.01), odd_sizes()};
                setup.config.freeze_step = ONEBIT_FREEZE_AUTO;
                setup.config.beta2 = 0.97;
                setup.config.freeze_window = window;
                setup.config.freeze_band = 0.4; // few elements, hence noise
                setup.config.lr_warmup_steps = 30;
                const std::uint64_t step =
                    frozen_by_rule(comm, log, setup, gaussian_gradient(total(odd_sizes()), 1), 90);
                ONEBIT_EXPECT(log, step >= 33 && step < 90);
            }
        }
    });
}

TEST_CASE("a warm-up says what it waits for", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {50, 50}};
        setup.config.freeze_step = ONEBIT_FREEZE_AUTO;
        setup.config.beta2 = 0.9;
        setup.config.freeze_window = 8;
        Training training(comm, setup, log);
        const auto waits_for = [&](std::uint64_t first, std::uint64_t last, onebit_freeze_wait_t what) {
            for (std::uint64_t t = first; t <= last; ++t) {
                std::vector<float> gradient(100, 1.0F);
                for (std::size_t i = 50; i < 100; ++i) gradient[i] = std::exp(0.1F * static_cast<float>(t));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(training.get(), t <= 20 ? 1e-4 * double(t) : 1e-3));
                training.step(gradient);
                ONEBIT_EXPECT(log, training.info().freeze_wait == what);
            }
        };
        waits_for(1, 15, ONEBIT_FREEZE_WAIT_STEPS); // two windows
        waits_for(16, 27, ONEBIT_FREEZE_WAIT_LR);   // it rises until step 20
        waits_for(28, 40, ONEBIT_FREEZE_WAIT_VARIANCE);
        const onebit_optimizer_info_t info = training.info();
        ONEBIT_EXPECT(log, info.freeze_tensor == 1 && info.freeze_ratio > 4 && info.freeze_ratio < 5.5); // e^1.6
        std::uint64_t t = 41; // the second tensor's gradients are steady from now on
        for (; t <= 300 && training.info().frozen == 0; ++t) training.step(std::vector<float>(100, 1.0F));
        ONEBIT_EXPECT(log, t < 300 && training.info().freeze_wait == ONEBIT_FREEZE_WAIT_NONE);
    });
}

TEST_CASE("never frozen, 0/1 Adam's exact rounds grow rare", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM), odd_sizes()};
        setup.config.freeze_step = ONEBIT_FREEZE_NEVER;
        BesideOracle both(comm, setup, log);
        both.steps(gaussian_gradient(total(odd_sizes()), 1), 1, 70);
        // At 1, 2; 4, 6; 8, 12; 16, 24; 32, 48; 64.
        const onebit_optimizer_info_t info = both.training.info();
        ONEBIT_EXPECT(log, info.exact_rounds == 11 && info.compressed_rounds == 59);
        ONEBIT_EXPECT(log, info.frozen == 0 && info.freeze_step == 0);
    });
}

TEST_CASE("elements that never had a gradient are left alone", "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = embedding_gradient(log.size());
        const std::vector<float> start = initial_parameters(embedding_count);
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const Mode& mode : {all_modes()[1], default_mode()}) {
                for (double decay : {0.0, 0.1}) {
                    log.context(name_of(kind) + ", " + mode.name() + ", weight decay " + std::to_string(decay));
                    Setup setup{quick_config(kind), {37, 200, 51}};
                    setup.config.weight_decay = decay;
                    setup.config.scale = mode.scale;
                    setup.config.group = mode.group;
                    BesideOracle both(comm, setup, log);
                    both.steps(gradient, 1, 20);
                    ONEBIT_EXPECT(log, both.training.info().masked == late_end - late_begin);
                    const std::vector<float> now = both.training.parameters();
                    ONEBIT_EXPECT(log, now[lonely] != start[lonely] && now[third] != start[third]);
                    std::size_t moved = 0; // weight decay goes on; the oracle has said how
                    for (std::size_t i = late_begin; i < late_end; ++i) moved += now[i] != start[i] ? 1 : 0;
                    ONEBIT_EXPECT(log, moved == (decay == 0 ? 0 : late_end - late_begin));
                }
            }
        }
    });
}

TEST_CASE("elements whose variance has come back to zero are masked, momentum and all", "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = [inner = gaussian_gradient(total(odd_sizes()), 1)](int rank, std::uint64_t t) {
            std::vector<float> values = inner(rank, t);
            if (t == 6) std::fill(values.begin() + 100, values.begin() + 120, 0.0f); // of the last warm-up step
            return values;
        };
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), odd_sizes()};
            setup.config.beta2 = 0; // v is the last gradient's square alone
            setup.config.eps = 0.1;
            BesideOracle both(comm, setup, log);
            both.steps(gradient, 1, 6);
            ONEBIT_EXPECT(log, both.training.info().masked == 20);
            both.steps(gradient, 7, 20);
        }
    });
}

TEST_CASE("the errors of the exchange can be read and reset", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Gradient gradient = gaussian_gradient(total(odd_sizes()), 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            const Setup setup{quick_config(kind), odd_sizes()};
            BesideOracle both(comm, setup, log);
            const onebit_optimizer_t handle = both.training.get();
            std::size_t carried = 0;
            for (std::uint64_t t = 1; t <= 16; ++t) {
                both.step(gradient, t);
                const OptimizerErrors errors = both.training.errors();
                std::vector<float> worker(errors.worker.size()), server(worker.size());
                ONEBIT_EXPECT_OK(log, onebit_optimizer_get_error(handle, worker.data(), nullptr));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_get_error(handle, nullptr, server.data()));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_get_error(handle, nullptr, nullptr));
                ONEBIT_EXPECT(log, errors.same_as({worker, server}));
                for (float e : worker) carried += e != 0 ? 1 : 0;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_reset_error(handle)); // no error feedback at all
                if (both.freezing != nullptr) both.freezing->reduce.reset();
                const OptimizerErrors none = both.training.errors();
                std::size_t left = 0;
                for (std::size_t i = 0; i < worker.size(); ++i)
                    left += none.worker[i] != 0 || none.server[i] != 0 ? 1 : 0;
                ONEBIT_EXPECT(log, left == 0);
            }
            ONEBIT_EXPECT(log, (carried > 0) == freezes(kind));
        }
    });
}
