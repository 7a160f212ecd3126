// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads of this process.
#include "support/rank_runner.hpp"
#include "support/sanitized.hpp"

namespace onebit_test {

std::vector<int> rank_counts() {
    if (is_sanitized()) return {3}; // it takes ten times as long
    return {1, 3};                  // 2 and 4 are processes' (rank_processes.cpp, rank_bootstrap.cpp)
}

bool calls_are_quick() {
    return !is_sanitized();
}

bool can_have_ranks(int /*n*/) {
    return true;
}

const char* transport_name() {
    return "loopback";
}

bool threads_allowed() {
    return true;
}

void run_ranks(int n, const Body& body) {
    const std::size_t ranks = static_cast<std::size_t>(n);
    std::vector<onebit_comm_t> comms(ranks, nullptr);
    const onebit_status_t created = onebit_comm_create_loopback(n, comms.data());
    INFO(n << " ranks" << (created == ONEBIT_SUCCESS ? "" : onebit_last_error()));
    REQUIRE(created == ONEBIT_SUCCESS);

    const auto rank_of = [](const RankLog& log) { return static_cast<std::size_t>(log.rank()); };
    run_as_threads(
        n, [&](RankLog& log) { run_body(body, comms[rank_of(log)], log); },
        [&](Logs& logs) {
            for (const auto& log : logs)
                if (!log->comm_gone()) ONEBIT_EXPECT_OK(*log, onebit_comm_destroy(comms[rank_of(*log)]));
        });
}

} // namespace onebit_test
