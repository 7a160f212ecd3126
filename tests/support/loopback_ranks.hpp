// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The library's algorithms on ranks that are threads, below the C interface.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "transport/loopback.hpp"

namespace onebit_test {

/// Walks through all stages of one call.
inline onebit::Status run_stages(const onebit::Algorithm& algorithm) {
    onebit::StageRunner runner;
    runner.start(algorithm.stages());
    while (!runner.finished()) {
        onebit::Step step = onebit::Step::kDone;
        ONEBIT_RETURN_IF_ERROR(runner.advance(&step));
        if (onebit::waits(step)) std::this_thread::yield();
    }
    return {};
}

/// Calls run_rank(transport, &outcome) for every rank, each on its own thread; its status goes to outcome.status.
template <typename Outcome, typename RunRank>
std::vector<Outcome> run_loopback_ranks(std::size_t ranks, const RunRank& run_rank) {
    auto transports = onebit::make_loopback_transports(static_cast<int>(ranks));
    std::vector<Outcome> outcomes(ranks);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] { outcomes[r].status = run_rank(std::move(transports[r]), &outcomes[r]); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
}

} // namespace onebit_test
