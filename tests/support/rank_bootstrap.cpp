// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads of this process and communicate like processes without MPI.
#include <cstdlib>

#include "support/rank_runner.hpp"
#include "support/sanitized.hpp"

namespace onebit_test {

std::vector<int> rank_counts() {
    // Through shared memory two ranks meet as three do.
    const bool tcp_only = std::getenv("ONEBIT_TCP_ONLY") != nullptr;
    if (is_sanitized() || !tcp_only) return {3};
    return {2, 3};
}

bool calls_are_quick() {
    return false;
}

bool can_have_ranks(int /*n*/) {
    return true;
}

const char* transport_name() {
    return "tcp";
}

bool threads_allowed() {
    return true;
}

namespace {

int gather(void* context, const void* mine, void* all, std::size_t bytes) {
    gather_into(*static_cast<RankLog*>(context), mine, all, bytes);
    return 0;
}

void run_rank(const Body& body, RankLog& log) {
    const onebit_bootstrap_t bootstrap = ONEBIT_BOOTSTRAP_INIT(log.rank(), log.size(), gather, &log);
    onebit_comm_t comm = nullptr;
    if (!ONEBIT_EXPECT_OK(log, onebit_comm_create_bootstrap(&bootstrap, &comm))) return;
    run_body(body, comm, log);
    if (!log.comm_gone()) ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
}

} // namespace

void run_ranks(int n, const Body& body) {
    run_as_threads(n, [&](RankLog& log) { run_rank(body, log); });
}

} // namespace onebit_test
