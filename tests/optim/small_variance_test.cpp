// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Elements whose variance is far below their neighbours', with whom they share a scale: they must not run away.
#include <cmath>

#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr std::size_t count = 1000;

// How far element 0 goes in 300 steps at most, its gradients being `small` times its neighbours', frozen after step
// 100.
double movement(onebit_comm_t comm, RankLog& log, onebit_optimizer_config_t config, float small) {
    if (freezes(config.kind)) config.freeze_step = 100;
    Training training(comm, config, {count}, log);
    const float start = training.parameters()[0];
    double farthest = 0;
    for (std::uint64_t t = 1; t <= 300; ++t) {
        std::vector<float> gradient = make_data(Kind::gaussian, count, 11, log.rank(), t);
        gradient[0] *= small;
        training.step(gradient);
        farthest = std::max(farthest, std::fabs(double{training.parameters()[0]} - start));
    }
    return farthest;
}

} // namespace

TEST_CASE("an element of a small variance moves no further than by Adam", "[optimizer][freeze]") {
    const float small = GENERATE(1e-2F, 1e-4F, 1e-6F, 1e-8F);
    run_ranks(rank_counts().back(), [=](onebit_comm_t comm, RankLog& log) {
        const double dense = movement(comm, log, optimizer_config(ONEBIT_OPTIMIZER_ADAM, 1e-3), small);
        const onebit_optimizer_config_t updates = optimizer_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM, 1e-3);
        const double compressed = movement(comm, log, updates, small);
        log.context("1-bit Adam, " + std::to_string(compressed / dense) + " times as far as Adam");
        ONEBIT_EXPECT(log, compressed <= 1.5 * dense);
        onebit_optimizer_config_t momenta = updates; // as in the paper: it does run away
        momenta.compressed = ONEBIT_COMPRESSED_MOMENTA;
        ONEBIT_EXPECT(log, movement(comm, log, momenta, small) > 2 * dense);
    });
}
