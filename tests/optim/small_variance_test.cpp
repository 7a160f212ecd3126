// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Elements whose variance is far below their neighbours', with whom they share a scale: they must not run away.
#include <algorithm>
#include <cmath>

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

} // namespace

TEST_CASE("an element of a small variance moves no further than by Adam", "[optimizer][freeze]") {
    const float small = GENERATE(1e-2F, 1e-4F, 1e-6F, 1e-8F);
    constexpr int ranks = 2; // of more, 0/1 Adam's go further before they meet
    if (std::find(rank_counts().begin(), rank_counts().end(), ranks) == rank_counts().end()) return;
    run_ranks(ranks, [=](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            const bool lamb = kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
            const onebit_optimizer_kind_t dense_kind = lamb ? ONEBIT_OPTIMIZER_LAMB : ONEBIT_OPTIMIZER_ADAM;
            const Movement dense = movement(comm, log, optimizer_config(dense_kind, 1e-3), small);
            onebit_optimizer_config_t config = optimizer_config(kind, 1e-3);
            config.local_step_scaler = 50; // between rounds, 0/1 Adam's ranks go further than dense Adam, all elements
            const Movement updates = movement(comm, log, config, small);
            config.compressed = ONEBIT_COMPRESSED_MOMENTA; // as in the papers: it does run away
            const Movement momenta = movement(comm, log, config, small);
            log.context(name_of(kind) + ": dense " + std::to_string(dense.small) + ", updates " +
                        std::to_string(updates.small) + ", its neighbours " + std::to_string(updates.neighbours) +
                        ", momenta " + std::to_string(momenta.small));
            const bool meets = kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
            ONEBIT_EXPECT(log, updates.small <= 1.5 * (meets ? updates.neighbours : dense.small));
            ONEBIT_EXPECT(log, momenta.small > 1.5 * dense.small);
        }
    });
}
