// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// 1-bit Adam in its compression stage needs as much memory as dense Adam for m and v, and hardly any more.
#include "support/environment.hpp"
#include "support/training.hpp"

using namespace onebit_test;

TEST_CASE("1-bit Adam's compression stage takes dense Adam's memory, 4d/n + d/2 more", "[optimizer][memory]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "1"); // without the little memory that a node shares in the warm-up
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Setup setup{quick_config(ONEBIT_OPTIMIZER_ONEBIT_ADAM), {300001, 77, 150000, 4096}};
        const std::size_t count = total(setup.sizes);
        const Gradient gradient = gaussian_gradient(count, 1);
        for (const bool masked : {false, true}) {
            log.context(masked ? "masked" : "not masked");
            Training training(comm, setup, log);
            for (std::uint64_t t = 1; t <= 8; ++t) {
                std::vector<float> values = gradient(log.rank(), t);
                if (masked) std::fill_n(values.begin(), 1000, 0.0F);
                training.step(values);
            }
            const onebit_optimizer_info_t info = training.info();
            ONEBIT_EXPECT(log, info.frozen == 1 && info.steps == 8);
            ONEBIT_EXPECT(log, info.masked == (masked ? 1000U : 0U));
            const std::uint64_t dense = 8 * count; // m and v alone
            const std::uint64_t most = dense + 4 * count / static_cast<std::uint64_t>(log.size()) + count / 2;
            const std::uint64_t late_gradients = masked ? 4 * count : 0;
            ONEBIT_EXPECT(log, info.state_bytes > dense);
            ONEBIT_EXPECT(log, info.state_bytes <= most + late_gradients + 4096); // what doesn't grow with the model
        }
    });
}

TEST_CASE("what exact averages send counts, whichever way it goes", "[optimizer][bytes]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const char* const ranks_of_node : {"1", "4"}) { // by messages; in shared memory
        const Variable node_size("ONEBIT_NODE_SIZE", ranks_of_node);
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            log.context(ranks_of_node);
            Setup setup{quick_config(ONEBIT_OPTIMIZER_ADAM), {70000, 20000}};
            Training training(comm, setup, log);
            training.steps(gaussian_gradient(total(setup.sizes), 1), 1, 3);
            const std::uint64_t ranks = static_cast<std::uint64_t>(log.size());
            const std::uint64_t sent = training.info().warmup_bytes_sent;
            const std::uint64_t sums = 3 * 2 * (ranks - 1) * 4 * total(setup.sizes) / ranks; // of a ring
            ONEBIT_EXPECT(log, sent >= sums && sent <= sums + 1000 * ranks);
        });
    }
}
