// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks without MPI meet, with memory that runs out at every place.
#include "faults/allocation_sweep.hpp"
#include "support/environment.hpp"
#include "support/failing_allocations.hpp"
#include "support/rank_runner.hpp"

namespace onebit_test {
namespace {

int gather(void* context, const void* mine, void* all, std::size_t bytes) {
    const Unarmed unarmed;
    gather_into(*static_cast<RankLog*>(context), mine, all, bytes);
    return 0;
}

std::unique_ptr<Subject> creation_over_tcp(RankLog& log) {
    return std::make_unique<Creation<onebit_comm_t>>(
        log,
        [&log](onebit_comm_t* comm) {
            const onebit_bootstrap_t bootstrap = ONEBIT_BOOTSTRAP_INIT(log.rank(), log.size(), gather, &log);
            return onebit_comm_create_bootstrap(&bootstrap, comm);
        },
        onebit_comm_destroy);
}

} // namespace

TEST_CASE("communicators without MPI are made with memory, or on no rank", "[memory][bootstrap]") {
    const char* const tcp_only = GENERATE("0", "1");
    const Variable variable("ONEBIT_TCP_ONLY", tcp_only);
    run_sweep({.name = std::string("create without MPI, ONEBIT_TCP_ONLY=") + tcp_only,
               .make = [](onebit_comm_t, RankLog& log) { return creation_over_tcp(log); },
               .on_communicator = false});
}

} // namespace onebit_test
