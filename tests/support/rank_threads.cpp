// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads of this process.
#include <barrier>
#include <memory>
#include <thread>

#include "support/rank_runner.hpp"
#include "support/sanitized.hpp"

namespace onebit_test {

std::vector<int> rank_counts() {
    if (sanitized) return {1, 3}; // it takes ten times as long, and 4 processes are looked at, too
    return {1, 2, 3, 4};
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

    std::vector<Bytes> slots(ranks);
    std::barrier<> meeting(n);
    std::vector<std::unique_ptr<RankLog>> logs;
    std::vector<RankLog*> pointers;
    for (std::size_t r = 0; r < ranks; ++r) {
        logs.push_back(std::make_unique<RankLog>(static_cast<int>(r), n, [&slots, &meeting, r](Bytes mine) {
            slots[r] = std::move(mine);
            meeting.arrive_and_wait();
            std::vector<Bytes> all = slots;
            meeting.arrive_and_wait(); // nobody writes the next round's slot before all have read this one's
            return all;
        }));
        pointers.push_back(logs.back().get());
    }
    run_watched(pointers, [&] {
        std::vector<std::thread> threads;
        for (std::size_t r = 0; r < ranks; ++r)
            threads.emplace_back([&body, &comms, &logs, r] { run_body(body, comms[r], *logs[r]); });
        for (std::thread& thread : threads) thread.join();
        for (std::size_t r = 0; r < ranks; ++r)
            if (!logs[r]->comm_gone()) ONEBIT_EXPECT_OK(*logs[r], onebit_comm_destroy(comms[r]));
    });
    for (const auto& log : logs) report(*log);
}

} // namespace onebit_test
