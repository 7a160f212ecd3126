// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// 0/1 Adam's schedule for BERT-Large's number of training steps [0/1 Adam, section 6]: how often the ranks meet.
#include "support/training.hpp"

using namespace onebit_test;

TEST_CASE("0/1 Adam's rounds in 152000 steps of BERT-Large", "[optimizer][schedule]") {
    run_ranks(1, [](onebit_comm_t comm, RankLog& log) {
        onebit_optimizer_config_t config = optimizer_config(ONEBIT_OPTIMIZER_ZERO_ONE_ADAM, 1e-4);
        config.freeze_step = 12500;
        config.variance_updates = 16;
        config.local_step_scaler = 32678;
        config.local_steps = 16;
        const std::size_t count = 64;
        Training training(comm, config, {count}, log);
        const std::vector<std::vector<float>> gradients = {make_data(Kind::gaussian, count, 1, log.rank(), 0),
                                                           make_data(Kind::gaussian, count, 1, log.rank(), 1)};
        for (std::uint64_t t = 1; t <= 12500; ++t) training.step(gradients[t % 2]);
        const onebit_optimizer_info_t warm = training.info();
        ONEBIT_EXPECT(log, warm.exact_rounds == 153);
        ONEBIT_EXPECT(log, warm.compressed_rounds == 12347);
        ONEBIT_EXPECT(log, warm.freeze_step == 12500);
        for (std::uint64_t t = 12501; t <= 152000; ++t) training.step(gradients[t % 2]);
        const onebit_optimizer_info_t info = training.info();
        ONEBIT_EXPECT(log, info.steps == 152000);
        ONEBIT_EXPECT(log, info.exact_rounds == 153);
        ONEBIT_EXPECT(log, info.compressed_rounds == 12347 + 61821);
    });
}
