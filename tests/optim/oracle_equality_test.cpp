// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// All five optimizers beside the oracle, over warm-up, freeze and compression.
#include "optim/long_setup.hpp"
#include "support/beside_oracle.hpp"

using namespace onebit_test;

namespace {

void train(onebit_comm_t comm, RankLog& log, const Setup& setup, std::uint64_t steps, std::uint64_t seed = 1) {
    BesideOracle both(comm, setup, log);
    both.steps(gaussian_gradient(total(setup.sizes), seed), 1, steps);
}

} // namespace

TEST_CASE("200 steps of each optimizer equal the oracle", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    run_ranks(n, [kind](onebit_comm_t comm, RankLog& log) {
        for (double decay : {0.0, 0.1}) {
            log.context(name_of(kind) + ", weight decay " + std::to_string(decay));
            Setup setup = long_setup(kind);
            setup.config.weight_decay = decay;
            train(comm, log, setup, 200);
        }
        if (freezes(kind)) {
            log.context(name_of(kind) + ", momenta as in the papers");
            Setup setup = long_setup(kind);
            setup.config.compressed = ONEBIT_COMPRESSED_MOMENTA;
            setup.config.weight_decay = 0.1;
            train(comm, log, setup, 200);
        }
        log.context(name_of(kind) + ", without bias correction, L1 scale of the whole tensor");
        Setup setup = long_setup(kind);
        setup.config.bias_correction = 0;
        setup.config.eps = 0.05; // large enough that its place in the formulas matters
        setup.config.scale = ONEBIT_SCALE_L1;
        setup.config.group = ONEBIT_GROUP_BUFFER;
        train(comm, log, setup, 200);
    });
}

TEST_CASE("optimizers equal the oracle: every scale and group", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const Mode& mode : all_modes()) {
                log.context(name_of(kind) + ", " + mode.name());
                Setup setup{quick_config(kind), odd_sizes()};
                setup.config.scale = mode.scale;
                setup.config.group = mode.group;
                train(comm, log, setup, 25);
            }
        }
    });
}

// A neighbour's gradients change a tensor's bits where they share a scale, and only there.
TEST_CASE("a scale for each tensor is the tensor's own", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {3000, 1500};
        const Gradient gaussian = gaussian_gradient(4500, 3);
        const auto first_tensor = [&](const onebit_optimizer_config_t& config, float of_second) {
            Training training(comm, config, sizes, log);
            for (std::uint64_t t = 1; t <= 20; ++t) {
                std::vector<float> gradient = gaussian(log.rank(), t);
                for (std::size_t i = 3000; i < 4500; ++i) gradient[i] *= t % 2 == 0 ? of_second : 1;
                training.step(gradient);
            }
            std::vector<float> parameters = training.parameters();
            parameters.resize(3000);
            return parameters;
        };
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = quick_config(kind);
            config.group = ONEBIT_GROUP_TENSOR;
            const std::vector<float> own = first_tensor(config, 1);
            ONEBIT_EXPECT(log, same_bits(own, first_tensor(config, 100)));
            config.group = ONEBIT_GROUP_BUFFER;
            const std::vector<float> shared = first_tensor(config, 1);
            ONEBIT_EXPECT(log, !same_bits(shared, first_tensor(config, 100)));
            config.bucket_size = 1; // gives each tensor its own buffer
            ONEBIT_EXPECT(log, same_bits(own, first_tensor(config, 1)));
        }
    });
}

TEST_CASE("optimizers equal the oracle: the ends of the settings' ranges", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind) + ", betas 0");
            Setup setup{quick_config(kind), odd_sizes()};
            setup.config.beta1 = 0;
            setup.config.beta2 = 0;
            setup.config.eps = 0.1;
            setup.config.trust_beta = 0;
            train(comm, log, setup, 20);
            if (!freezes(kind)) continue;

            log.context(name_of(kind) + ", frozen after the first step");
            setup.config = quick_config(kind);
            setup.config.freeze_step = 1;
            train(comm, log, setup, 20);
            log.context(name_of(kind) + ", frozen after a step that 0/1 Adam compresses");
            setup.config.freeze_step = 5;
            train(comm, log, setup, 20);
        }
    });
}

TEST_CASE("optimizers equal the oracle: LAMB's own settings", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_LAMB, ONEBIT_OPTIMIZER_ONEBIT_LAMB}) {
            Setup setup{quick_config(kind), odd_sizes()};
            setup.config.weight_decay = 0.05;
            log.context(name_of(kind) + ", narrow bounds of the trust ratio");
            setup.config.min_trust = 0.9;
            setup.config.max_trust = 1.0; // a ratio of 1 is left out of the running mean
            train(comm, log, setup, 20);
            log.context(name_of(kind) + ", wide bounds");
            setup.config.min_trust = 0;
            setup.config.max_trust = 1e6;
            train(comm, log, setup, 20);
            log.context(name_of(kind) + ", one trust ratio for all");
            setup.config.min_trust = setup.config.max_trust = 1;
            train(comm, log, setup, 20);
            log.context(name_of(kind) + ", momenta as they are");
            setup.config = quick_config(kind);
            setup.config.momentum_scaling = 0;
            train(comm, log, setup, 20);
        }
    });
}

TEST_CASE("optimizers equal the oracle: tensors that are zero or get no gradient", "[optimizer][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {40, 37, 50}};
            setup.config.eps = 1e-3;
            const Gradient all = gaussian_gradient(127, 3);
            const Gradient gradient = [all](int rank, std::uint64_t t) {
                std::vector<float> values = all(rank, t);
                std::fill(values.begin() + 40, values.begin() + 77, 0.0f);
                return values;
            };
            BesideOracle both(comm, setup, log);
            both.steps(gradient, 1, 20);
            const std::vector<float> start = initial_parameters(127), now = both.training.parameters();
            ONEBIT_EXPECT(log, std::equal(start.begin() + 40, start.begin() + 77, now.begin() + 40));
            ONEBIT_EXPECT(log, both.training.info().masked == (freezes(kind) ? 37 : 0));
        }
    });
}

TEST_CASE("optimizers equal the oracle over many blocks", "[optimizer]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    run_ranks(n, [kind](onebit_comm_t comm, RankLog& log) {
        const std::size_t others =
            static_cast<std::size_t>(log.size()) - 1; // two blocks for each rank, one of them short
        for (onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            if (group == ONEBIT_GROUP_BUFFER && !freezes(kind)) continue;
            log.context(name_of(kind) + (group == ONEBIT_GROUP_BLOCK ? ", block" : ", tensor"));
            Setup setup{quick_config(kind), {1, 4095, 33, others * 4096 + 500, 777}};
            setup.config.freeze_step = freezes(kind) ? 4 : ONEBIT_FREEZE_NEVER;
            setup.config.group = group;
            setup.config.eps = 1e-3;
            train(comm, log, setup, 9, 3);
        }
    });
}
