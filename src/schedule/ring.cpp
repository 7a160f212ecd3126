// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/ring.hpp"

#include <utility>

#include "schedule/hopping_exchange.hpp"

namespace onebit {

Status plan_ring_all_gather(Transport& transport, int tag, std::span<const Part> blocks,
                            std::unique_ptr<Exchange>* exchange) {
    const std::size_t ranks = blocks.size();
    const auto rank = static_cast<std::size_t>(transport.rank());
    const auto to = [](std::size_t peer, Part block) {
        block.peer = static_cast<int>(peer);
        return block;
    };
    auto planned = std::make_unique<HoppingExchange>();
    for (std::size_t hop = 0; hop + 1 < ranks; ++hop) {
        const std::size_t leaving = (rank + ranks - hop) % ranks;
        const std::size_t next = (rank + 1) % ranks;
        const std::size_t previous = (rank + ranks - 1) % ranks;
        std::unique_ptr<Exchange> messages;
        ONEBIT_RETURN_IF_ERROR(transport.plan_exchange(
            {to(next, blocks[leaving])}, {to(previous, blocks[(leaving + ranks - 1) % ranks])}, tag, &messages));
        planned->add_hop({{}, std::move(messages)});
    }
    *exchange = std::move(planned);
    return {};
}

} // namespace onebit
