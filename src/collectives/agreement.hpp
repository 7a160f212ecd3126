// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/stages.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Lets all ranks come to one verdict before any of them changes anything: each says whether it is ready, and two words
/// that must be the same everywhere. 16 bytes to each peer; only where a rank is not ready do the reasons follow, in a
/// second exchange, so that every rank can name the culprit.
class Agreement {
  public:
    /// Plans the exchanges. Local. `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, int tag, std::unique_ptr<Agreement>* agreement);

    /// This rank's word: its own status, and what it is about to do. `what` names the two words for the message of a
    /// MISMATCH.
    void begin(const Status& own, std::uint32_t word, std::uint64_t value, std::array<const char*, 2> what);

    /// A stage: fails, on every rank alike, with the first failing rank's status or with MISMATCH.
    Status advance(Step* step);

    /// Once agreed: bytes allocated.
    std::size_t bytes() const { return tickets_.size() * sizeof(Ticket) + reasons_.size() * sizeof(Reason); }

  private:
    struct Ticket {
        std::uint32_t status;
        std::uint32_t word;
        std::uint64_t value;
    };
    using Reason = std::array<char, 256>;
    enum class Phase { kSendTickets, kAwaitTickets, kAwaitReasons };

    explicit Agreement(int rank, int size);
    Status judge(Step* step);
    Status verdict() const;

    std::size_t rank_;
    Phase phase_ = Phase::kSendTickets;
    std::vector<Ticket> tickets_; ///< by rank
    std::vector<Reason> reasons_; ///< by rank
    std::array<const char*, 2> what_{};
    std::unique_ptr<Exchange> ticket_exchange_;
    std::unique_ptr<Exchange> reason_exchange_;
};

/// An agreement on the spot: every rank comes with its own status, and leaves with the common one. Blocks.
Status agree(Transport& transport, double timeout, const Status& own);

/// The same, and `bytes` of every rank are gathered, in rank order, in `all` (size * bytes). `bytes` is the same on
/// every rank and a multiple of 4.
Status agree_and_gather(Transport& transport, double timeout, const Status& own, const void* mine, std::size_t bytes,
                        void* all);

/// Sends and receives of an all-gather: `bytes` for each rank, in rank order at `all`.
Status plan_all_gather(Transport& transport, int tag, void* all, std::size_t bytes,
                       std::unique_ptr<Exchange>* exchange);

} // namespace onebit
