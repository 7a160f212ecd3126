// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that are threads, each with a transport over the emulated NCCL.
#pragma once

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/emulated_nccl.hpp"
#include "transport/nccl.hpp"

namespace onebit_test {

constexpr double kNcclTimeout = 60;

/// Calls run_rank(transport, &outcome) for every rank, each on its own thread; its status goes to outcome.status.
/// `blocking`: the user's communicator, which the transport's is split off.
template <typename Outcome, typename RunRank>
std::vector<Outcome> run_nccl_ranks(EmulatedNccl& nccl, int ranks, const RunRank& run_rank, bool blocking = true,
                                    const onebit::NcclApi& api = EmulatedNccl::api()) {
    const std::vector<ncclComm*> comms = nccl.make_comms(ranks, blocking);
    std::vector<Outcome> outcomes(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < comms.size(); ++r) {
        threads.emplace_back([&, r] {
            outcomes[r].status = [&]() -> onebit::Status {
                std::unique_ptr<onebit::Transport> transport;
                ONEBIT_RETURN_IF_ERROR(onebit::make_nccl_transport(api, comms[r], nullptr, kNcclTimeout, &transport));
                return run_rank(std::move(transport), &outcomes[r]);
            }();
        });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
}

} // namespace onebit_test
