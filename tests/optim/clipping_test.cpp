// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Clipping. Steps that average exactly clip by the oracle's norm. Other steps clip by an estimate, the same on every
// rank. BesideOracle compares info.grad_norm with the true norm: within 1e-5 in the first case, a tenth in the second.
#include "support/beside_oracle.hpp"

using namespace onebit_test;

namespace {

// Of about norm 25 in all, and a larger norm for each rank; every fifth step's gradients are small.
Gradient uneven_gradient(std::size_t count, std::uint64_t seed) {
    return [inner = gaussian_gradient(count, seed)](int rank, std::uint64_t t) {
        std::vector<float> values = inner(rank, t);
        for (float& value : values) value *= t % 5 == 0 ? 0.01f : 0.2f;
        return values;
    };
}

} // namespace

TEST_CASE("gradients are clipped to a norm over all tensors", "[optimizer][clipping]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    run_ranks(n, [kind](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t seed : {1, 2, 3}) {
            log.context(name_of(kind) + ", seed " + std::to_string(seed));
            Setup setup{quick_config(kind), {300, 33, 127, 1, 500}};
            setup.config.max_grad_norm = 4;
            setup.config.weight_decay = 0.01;
            const Gradient gradient = uneven_gradient(total(setup.sizes), seed);
            BesideOracle both(comm, setup, log);
            std::size_t clipped = 0;
            for (std::uint64_t t = 1; t <= 25; ++t) {
                both.step(gradient, t);
                clipped += both.training.info().grad_norm > 4 ? 1 : 0;
            }
            ONEBIT_EXPECT(log, clipped >= 15 && clipped <= 20);
        }
    });
}

TEST_CASE("clipping counts tensors that are not compressed, and comes after the scale", "[optimizer][clipping]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {300, 200, 127, 1}};
            setup.groups.assign(2, ONEBIT_PARAM_GROUP_INIT(0.01));
            setup.groups[1].no_compress = 1;
            setup.group_of = {0, 1, 0, 1};
            setup.config.max_grad_norm = 4;
            BesideOracle both(comm, setup, log);
            both.reference->gradient_scale = 48;
            ONEBIT_EXPECT_OK(log, onebit_optimizer_set_gradient_scale(both.training.get(), 48));
            const Gradient gradient = [inner = uneven_gradient(628, 4)](int rank, std::uint64_t t) {
                std::vector<float> values = inner(rank, t);
                for (float& value : values) value *= 48;
                return values;
            };
            both.steps(gradient, 1, 25);
        }
    });
}

TEST_CASE("the gradient's norm over many blocks, whatever the number of threads", "[optimizer][clipping]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {9001, 4095, 20000};
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        std::vector<std::vector<float>> gradients;
        for (std::uint64_t t = 1; t <= 12; ++t) gradients.push_back(gradient(log.rank(), t));
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = quick_config(kind);
            config.max_grad_norm = 100;
            config.threads = 1;
            Training one(comm, config, sizes, log);
            config.threads = 3;
            Training three(comm, config, sizes, log);
            for (const std::vector<float>& values : gradients) {
                one.step(values);
                three.step(values);
                const double norm = one.info().grad_norm;
                ONEBIT_EXPECT(log, same_bits(one.parameters(), three.parameters()));
                ONEBIT_EXPECT(log, norm == three.info().grad_norm && norm > 100);
                ONEBIT_EXPECT(log, log.same_on_all(&norm, sizeof norm));
                std::vector<double> truth(values.size(), 0.0);
                for (const std::vector<float>& each : log.gather_floats(values))
                    for (std::size_t i = 0; i < truth.size(); ++i) truth[i] += each[i] / log.size();
                ONEBIT_EXPECT(log, std::fabs(norm / oracle::norm_of(truth) - 1) < 0.1);
            }
        }
    });
}

TEST_CASE("a bound that is never reached changes no bit", "[optimizer][clipping]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Sizes sizes = {300, 33, 127};
        const Gradient gradient = gaussian_gradient(total(sizes), 1);
        for (onebit_optimizer_kind_t kind : all_kinds()) {
            log.context(name_of(kind));
            onebit_optimizer_config_t config = quick_config(kind);
            Training free(comm, config, sizes, log);
            config.max_grad_norm = 1e6;
            Training bounded(comm, config, sizes, log);
            for (std::uint64_t t = 1; t <= 18; ++t) {
                free.steps(gradient, t, t);
                bounded.steps(gradient, t, t);
                ONEBIT_EXPECT(log, same_bits(free.parameters(), bounded.parameters()));
                ONEBIT_EXPECT(log, free.info().grad_norm == 0 && bounded.info().grad_norm > 0);
            }
        }
    });
}
