// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// ONEBIT_DETERMINISTIC=1: a program repeats bit for bit, with any MPI and with ranks that are threads. The results of
// these tests are always compared with those of threads of this very process.
#include <thread>

#include "support/environment.hpp"
#include "support/sanitized.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

/// A rank's results: averages of AUTO handles, on both sides of each choice, and parameters that AUTO trained.
std::vector<float> run_program(onebit_comm_t comm, RankLog& log) {
    std::vector<float> results;
    for (const std::uint64_t count : {100U, 3000U, 70001U, 600000U}) {
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
        Allreduce reduce(comm, config, log);
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> average = reduce.run(make_data(Kind::gaussian, count, 7, log.rank(), step));
            results.insert(results.end(), average.begin(), average.end());
        }
    }
    for (const onebit_optimizer_kind_t kind : all_kinds()) {
        Setup setup{quick_config(kind), {40001, 77, 30000}};
        setup.config.max_grad_norm = 1;
        Training training(comm, setup, log);
        training.steps(gaussian_gradient(total(setup.sizes), 3), 1, 12);
        const std::vector<float> parameters = training.parameters();
        results.insert(results.end(), parameters.begin(), parameters.end());
    }
    return results;
}

/// The same on threads of this process; returns the results of rank `rank`.
std::vector<float> run_on_threads(int ranks, int rank, RankLog& log) {
    std::vector<onebit_comm_t> comms(static_cast<std::size_t>(ranks));
    ONEBIT_EXPECT_OK(log, onebit_comm_create_loopback(ranks, comms.data()));
    std::vector<float> results;
    std::vector<std::string> failures(comms.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
            RankLog own(r, ranks, [](Bytes mine) { return std::vector<Bytes>{std::move(mine)}; });
            const std::vector<float> here = run_program(comms[static_cast<std::size_t>(r)], own);
            if (r == rank) results = here;
            if (own.failed() > 0) failures[static_cast<std::size_t>(r)] = own.failures().front();
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) log.expect(failure.empty(), failure, __FILE__, __LINE__);
    for (onebit_comm_t comm : comms) ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    return results;
}

} // namespace

TEST_CASE("with ONEBIT_DETERMINISTIC a program has the same bits with every MPI and on threads", "[deterministic]") {
    if (is_sanitized()) return; // minutes, and other tests make the same calls
    const int n = GENERATE(from_range(rank_counts()));
    const char* const node_size = GENERATE("1", "4"); // by messages; through shared memory
    const Variable deterministic("ONEBIT_DETERMINISTIC", "1");
    const Variable nodes("ONEBIT_NODE_SIZE", node_size);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        log.context(node_size);
        const std::vector<float> here = run_program(comm, log);
        // One after the other: each of them has as many threads as there are ranks.
        for (int r = 0; r < log.size(); ++r) {
            if (r == log.rank()) ONEBIT_EXPECT(log, same_bits(here, run_on_threads(log.size(), r, log)));
            log.barrier();
        }
    });
}

TEST_CASE("with ONEBIT_DETERMINISTIC AUTO doesn't go by what onebit_comm_tune measured", "[deterministic][tuning]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable deterministic("ONEBIT_DETERMINISTIC", "1");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(20000);
        const std::string before = Allreduce(comm, config, log).info().reason;
        ONEBIT_EXPECT(log, holds(before, "estimated"));
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 20000, 0.05, nullptr));
        ONEBIT_EXPECT(log, Allreduce(comm, config, log).info().reason == before);
    });
}
