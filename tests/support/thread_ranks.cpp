// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <barrier>
#include <cstring>
#include <thread>

#include "support/rank_runner.hpp"

namespace onebit_test {

void run_as_threads(int n, const std::function<void(RankLog&)>& run_rank,
                    const std::function<void(Logs&)>& afterwards) {
    const std::size_t ranks = static_cast<std::size_t>(n);
    std::vector<Bytes> slots(ranks);
    std::barrier<> meeting(n);
    Logs logs;
    std::vector<RankLog*> pointers;
    for (std::size_t r = 0; r < ranks; ++r) {
        logs.push_back(std::make_unique<RankLog>(static_cast<int>(r), n, [&slots, &meeting, r](Bytes mine) {
            slots[r] = std::move(mine);
            meeting.arrive_and_wait();
            std::vector<Bytes> all = slots;
            meeting.arrive_and_wait(); // all ranks read this round's slots before any writes the next
            return all;
        }));
        pointers.push_back(logs.back().get());
    }
    run_watched(pointers, [&] {
        std::vector<std::thread> threads;
        for (std::size_t r = 0; r < ranks; ++r) threads.emplace_back([&run_rank, &logs, r] { run_rank(*logs[r]); });
        for (std::thread& thread : threads) thread.join();
        if (afterwards) afterwards(logs);
    });
    for (const auto& log : logs) report(*log);
}

void gather_into(RankLog& log, const void* mine, void* all, std::size_t bytes) {
    const std::vector<Bytes> gathered = log.gather_bytes(mine, bytes);
    for (std::size_t r = 0; r < gathered.size(); ++r)
        std::memcpy(static_cast<unsigned char*>(all) + r * bytes, gathered[r].data(), bytes);
}

} // namespace onebit_test
