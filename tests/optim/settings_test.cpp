// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Groups with their own settings, settings that change between steps, the gradients' scale, and clipping.
#include "support/beside_oracle.hpp"

using namespace onebit_test;

namespace {

// Seven tensors in three groups; those of the last are never compressed and lie between others.
Setup grouped_setup(onebit_optimizer_kind_t kind) {
    Setup setup{quick_config(kind), {33, 7, 50, 1, 64, 13, 71}, three_groups(), {0, 2, 1, 0, 0, 2, 1}};
    onebit_param_group_t& dense = setup.groups[2];
    dense.beta1 = 0.95;
    dense.beta2 = 0.97;
    dense.eps = 1e-5;
    dense.weight_decay = 0.02;
    setup.config.lr = 123; // not used if there are groups
    return setup;
}

const Gradient& grouped_gradient() {
    static const Gradient gradient = gaussian_gradient(33 + 7 + 50 + 1 + 64 + 13 + 71, 1);
    return gradient;
}

} // namespace

TEST_CASE("groups have settings of their own", "[optimizer][groups]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            for (int bias : {0, 1}) {
                log.context(name_of(kind) + ", bias correction " + std::to_string(bias));
                Setup setup = grouped_setup(kind);
                setup.config.bias_correction = bias;
                BesideOracle both(comm, setup, log);
                both.steps(grouped_gradient(), 1, 30);
                const onebit_optimizer_info_t info = both.training.info();
                if (freezes(kind)) ONEBIT_EXPECT(log, info.exact_rounds < 7); // no_compress counts in neither
            }
        }
    });
}

TEST_CASE("the tensors' order in the buffer is that of registration, whatever their groups", "[optimizer][groups]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        // Groups with equal settings give the same bits as no groups.
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup plain{quick_config(kind), {33, 7, 50, 128, 64}};
            Setup grouped = plain;
            grouped.groups.assign(3, ONEBIT_PARAM_GROUP_INIT(0.01));
            grouped.group_of = {2, 0, 1, 1, 0};
            Training one(comm, plain, log), other(comm, grouped, log);
            const Gradient gradient = gaussian_gradient(total(plain.sizes), 5);
            for (std::uint64_t t = 1; t <= 16; ++t) {
                one.steps(gradient, t, t);
                other.steps(gradient, t, t);
                ONEBIT_EXPECT(log, same_bits(one.parameters(), other.parameters()));
            }
        }
    });
}

TEST_CASE("the freeze rule looks at the compressed groups", "[optimizer][groups][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Setup setup = grouped_setup(kind);
            setup.config.freeze_step = ONEBIT_FREEZE_PAPER;
            setup.config.variance_updates = 100;
            setup.groups[0].beta2 = 0.9; // delta is 10, not the other groups' 5 or 100
            setup.groups[1].beta2 = 0.8;
            setup.groups[2].beta2 = 0.99;
            const Gradient gradient = [](int rank, std::uint64_t t) {
                std::vector<float> values = grouped_gradient()(rank, t);
                for (std::size_t i = 33; i < 40; ++i)
                    values[i] *= 1e4f * static_cast<float>(t); // not compressed: never steady
                return values;
            };
            BesideOracle both(comm, setup, log);
            both.steps(gradient, 1, 50);
            ONEBIT_EXPECT(log, both.freezing->rule_margin() >= 1e-5); // else rounding decides; take other data
            const std::uint64_t step = both.training.info().freeze_step;
            ONEBIT_EXPECT(log, step > 10 && step < 50);
        }
    });
}

TEST_CASE("the learning rate can change from step to step, to zero too", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {33, 127, 5}};
            setup.config.weight_decay = 0.01;
            const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
            BesideOracle both(comm, setup, log);
            for (std::uint64_t t = 1; t <= 24; ++t) {
                const double lr = t % 3 == 0 ? 0 : 0.05 / static_cast<double>(t);
                both.reference->model.groups[0].lr = lr;
                ONEBIT_EXPECT_OK(log, t % 2 == 0 ? onebit_optimizer_set_lr(both.training.get(), lr)
                                                 : onebit_optimizer_set_group_lr(both.training.get(), 0, lr));
                const std::vector<float> before = both.training.parameters();
                both.step(gradient, t);
                // 0/1 Adam's rounds deliver earlier steps' errors.
                if (lr != 0 || kind != ONEBIT_OPTIMIZER_ZERO_ONE_ADAM || t <= 6)
                    ONEBIT_EXPECT(log, same_bits(before, both.training.parameters()) == (lr == 0));
            }
        }
    });
}

TEST_CASE("0/1 Adam's momenta stay where the learning rate was zero all the way", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Setup setup{quick_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM), {33, 127, 5}};
        const Gradient gradient = gaussian_gradient(total(setup.sizes), 1);
        BesideOracle both(comm, setup, log);
        for (std::uint64_t t = 1; t <= 32; ++t) {
            const double lr = t >= 17 && t <= 20 ? 0 : 0.01; // between the rounds after steps 16 and 20
            both.reference->model.groups[0].lr = lr;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(both.training.get(), lr));
            both.step(gradient, t);
        }
    });
}

TEST_CASE("learning rates of one group and of all", "[optimizer][groups]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            BesideOracle both(comm, grouped_setup(kind), log);
            std::vector<oracle::Settings>& groups = both.reference->model.groups;
            for (std::uint64_t t = 1; t <= 24; ++t) {
                const double lr = 0.02 / static_cast<double>(t);
                if (t % 5 == 0) {
                    for (oracle::Settings& group : groups) group.lr = lr;
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_lr(both.training.get(), lr));
                } else {
                    const std::size_t k = static_cast<std::size_t>(t % 3);
                    groups[k].lr = lr;
                    ONEBIT_EXPECT_OK(log, onebit_optimizer_set_group_lr(both.training.get(), k, lr));
                }
                both.step(grouped_gradient(), t);
            }
        }
    });
}

TEST_CASE("gradients are divided by their scale", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {33, 127, 5};
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind) + ", a power of two");
            Training plain(comm, quick_config(kind), sizes, log), scaled(comm, quick_config(kind), sizes, log);
            float scale = 1024;
            for (std::uint64_t t = 1; t <= 18; ++t) {
                if (t % 4 == 0) scale *= t % 8 == 0 ? 4.0f : 0.125f;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(scaled.get(), scale));
                std::vector<float> values = gradient(log.rank(), t);
                plain.step(values);
                for (float& value : values) value *= scale;
                scaled.step(values);
                ONEBIT_EXPECT(log, same_bits(plain.parameters(), scaled.parameters()));
            }
            log.context(name_of(kind) + ", another scale");
            BesideOracle both(comm, {quick_config(kind), sizes}, log);
            for (std::uint64_t t = 1; t <= 18; ++t) {
                const double other = t < 8 ? 3 : 700;
                both.reference->gradient_scale = other;
                ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(both.training.get(), other));
                both.step(gradient, t);
            }
        }
    });
}
