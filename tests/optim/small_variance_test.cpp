// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Elements whose variance is far below that of neighbours with the same scale: they must not move too far.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "support/directory.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr std::size_t count = 1000;

struct Movement {
    double small = 0;      // of element 0, at most, in 300 steps
    double neighbours = 0; // of the ten after it
};

// Element 0's gradients are `small` times its neighbours'; v is frozen after step 100.
Movement movement(onebit_comm_t comm, RankLog& log, onebit_optimizer_config_t config, float small) {
    if (freezes(config.kind)) config.freeze_step = 100;
    config.variance_updates = 1000; // 0/1 Adam: exact until then
    Training training(comm, config, {count}, log);
    const std::vector<float> start = training.parameters();
    Movement farthest;
    for (std::uint64_t t = 1; t <= 300; ++t) {
        std::vector<float> gradient = make_data(Kind::gaussian, count, 11, log.rank(), t);
        gradient[0] *= small;
        training.step(gradient);
        const std::vector<float> now = training.parameters();
        for (std::size_t i = 0; i <= 10; ++i) {
            double& most = i == 0 ? farthest.small : farthest.neighbours;
            most = std::max(most, std::fabs(double{now[i]} - start[i]));
        }
    }
    return farthest;
}

// The dense optimizer's movement, and the compared optimizer's movement with either exchange, for a small variance.
struct Comparison {
    Movement dense, updates, momenta;
};

// `local_steps`: 0/1 Adam's ranks finally meet in every 16th step; else they meet in every step, as they do by default
// in the first 32768 steps.
Comparison compare(onebit_comm_t comm, RankLog& log, onebit_optimizer_kind_t kind, bool local_steps, float small) {
    const bool lamb = kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
    onebit_optimizer_config_t config = optimizer_config(kind, 1e-3);
    if (local_steps) config.local_step_scaler = 50;
    onebit_optimizer_config_t as_in_papers = config;
    as_in_papers.compressed = ONEBIT_COMPRESSED_MOMENTA;
    return {movement(comm, log, optimizer_config(lamb ? ONEBIT_OPTIMIZER_LAMB : ONEBIT_OPTIMIZER_ADAM, 1e-3), small),
            movement(comm, log, config, small), movement(comm, log, as_in_papers, small)};
}

constexpr int ranks = 2; // with more ranks, 0/1 Adam's go further before they meet

struct Way {
    onebit_optimizer_kind_t kind;
    bool local_steps;
    const char* name;
};
constexpr Way ways[] = {{ONEBIT_OPTIMIZER_ONEBIT_ADAM, false, "1-bit Adam"},
                        {ONEBIT_OPTIMIZER_ONEBIT_LAMB, false, "1-bit LAMB"},
                        {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, false, "0/1 Adam"},
                        {ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, true, "0/1 Adam, with local steps"}};

} // namespace

TEST_CASE("an element of a small variance moves no further than by Adam", "[optimizer][freeze][long]") {
    const float small = GENERATE(1e-2F, 1e-4F, 1e-6F, 1e-8F);
    if (!can_have_ranks(ranks)) {
        SUCCEED();
        return;
    }
    run_ranks(ranks, [=](onebit_comm_t comm, RankLog& log) {
        for (const auto& [kind, local_steps, name] : ways) {
            const Comparison c = compare(comm, log, kind, local_steps, small);
            log.context(std::string(name) + ": dense " + std::to_string(c.dense.small) + ", updates " +
                        std::to_string(c.updates.small) + ", momenta " + std::to_string(c.momenta.small));
            // Between rounds all elements go further than by dense Adam.
            ONEBIT_EXPECT(log, c.updates.small <= 1.5 * (local_steps ? c.updates.neighbours : c.dense.small));
            ONEBIT_EXPECT(log, c.momenta.small > 1.5 * c.dense.small); // it does move too far
        }
    });
}

// The first tensor's element 7 and the second's element 100 have small gradients, its element 5 has none.
TEST_CASE("where momenta share a scale, the freeze tells how far it takes a small variance", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER, ONEBIT_GROUP_TENSOR}) {
                log.context(name_of(kind) + ", group " + std::to_string(group));
                onebit_optimizer_config_t config = optimizer_config(kind, 1e-3);
                config.freeze_step = 100;
                config.variance_updates = 1000; // 0/1 Adam: exact until then
                config.compressed = ONEBIT_COMPRESSED_MOMENTA;
                config.group = group;
                const Sizes sizes = {1100, 1300};
                const Gradient gradient = [](int rank, std::uint64_t step) {
                    std::vector<float> values = make_data(Kind::gaussian, 2400, 11, rank, step);
                    for (const auto& [element, factor] : {std::pair{7, 1e-2F}, {1100 + 100, 1e-4F}, {1100 + 5, 0.0F}}) {
                        values[static_cast<std::size_t>(element)] *= factor;
                    }
                    return values;
                };
                Training training(comm, config, sizes, log);
                training.steps(gradient, 1, 100);
                ONEBIT_EXPECT(log, training.info().step_ratio == 0);
                training.steps(gradient, 101, 101);
                const onebit_optimizer_info_t info = training.info();
                ONEBIT_EXPECT(log, info.masked == 1 && info.step_tensor == 1);
                log.context("ratio " + std::to_string(info.step_ratio));
                ONEBIT_EXPECT(log, info.step_ratio > 0.7e4 && info.step_ratio < 1.4e4);

                const std::string prefix = directory.prefix(std::to_string(kind) + "-" + std::to_string(group));
                ONEBIT_EXPECT_OK(log, onebit_optimizer_save(training.get(), prefix.c_str()));
                Training loaded(comm, config, sizes, log);
                ONEBIT_EXPECT_OK(log, onebit_optimizer_load(loaded.get(), prefix.c_str()));
                ONEBIT_EXPECT(log, loaded.info().step_ratio == info.step_ratio && loaded.info().step_tensor == 1);

                config.compressed = ONEBIT_COMPRESSED_UPDATES;
                Training updates(comm, config, sizes, log);
                updates.steps(gradient, 1, 101);
                ONEBIT_EXPECT(log, updates.info().frozen == 1 && updates.info().step_ratio == 0);
            }
        }
    });
}

// Neighbours in the buffer, but not in a block of it: 4096 elements of a rank's chunk.
TEST_CASE("a small variance among its like goes no further than suits it", "[optimizer][freeze]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 1e-3);
            config.freeze_step = 30;
            config.compressed = ONEBIT_COMPRESSED_MOMENTA;
            config.group = group;
            const std::size_t half = 8192 * static_cast<std::size_t>(log.size());
            Training training(comm, config, {half, half}, log);
            for (std::uint64_t t = 1; t <= 31; ++t) {
                std::vector<float> gradient(2 * half, log.rank() % 2 == 0 ? 1.5F : 1.0F);
                std::fill(gradient.begin(), gradient.begin() + static_cast<std::ptrdiff_t>(half), 1e-3F);
                training.step(gradient);
            }
            const double ratio = training.info().step_ratio;
            log.context("group " + std::to_string(group) + ": ratio " + std::to_string(ratio));
            if (group == ONEBIT_GROUP_BLOCK) ONEBIT_EXPECT(log, ratio < 1.001);
            if (group == ONEBIT_GROUP_BUFFER) ONEBIT_EXPECT(log, ratio > 700 && ratio < 1100); // sqrt(1/2) g / 1e-3
        }
    });
}

// onebit_tests "[small variance]" prints the table in docs/OPTIMIZERS.md.
TEST_CASE("how far an element of a small variance moves", "[.][small variance]") {
    run_ranks(ranks, [](onebit_comm_t comm, RankLog& log) {
        for (const auto& [kind, local_steps, name] : ways) {
            for (const float small : {1e-2F, 1e-4F, 1e-6F, 1e-8F}) {
                const Comparison c = compare(comm, log, kind, local_steps, small);
                if (log.rank() != 0) continue;
                std::printf("| %s | %g | %.3g | %.3g | %.3g |\n", name, double{small}, c.dense.small, c.updates.small,
                            c.momenta.small);
            }
        }
    });
}
