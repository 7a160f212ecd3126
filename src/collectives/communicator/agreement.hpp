// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/call/stages.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// What a rank has told the others beside its status.
struct Told {
    std::uint32_t word = 0;
    std::uint64_t value = 0;
};

/// Lets all ranks come to one verdict before any of them changes anything. Each rank says whether it is ready, two
/// words that must be the same everywhere, and a flag that may differ: 16 bytes. If a rank is not ready, the reasons
/// follow in a second exchange, so that every rank can name the rank that failed.
class Agreement {
  public:
    /// Plans the exchanges. Local. `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, int tag, std::unique_ptr<Agreement>* agreement);

    std::size_t ranks() const { return tickets_.size(); }

    /// This rank's part: its own status, and what it is about to do. `what` names the two words for the message of a
    /// MISMATCH.
    void begin(const Status& own, std::uint32_t word, std::uint64_t value, std::array<const char*, 2> what,
               bool flag = false);

    /// A stage, done when the verdict is known. Fails only if the transport does.
    Status advance(Step* step);

    /// The verdict, the same on every rank: the first failing rank's status, or MISMATCH, or success.
    const Status& verdict() const { return verdict_; }
    /// Whether all ranks came with the same word, whatever the verdict; once that is known.
    bool same_word() const;
    /// Whether all ranks came with success, whatever their words; once that is known.
    bool all_ready() const { return first_rank(&Agreement::is_bad) == ranks(); }
    /// What a rank came with; once that is known.
    Told told(std::size_t rank) const { return {tickets_[rank].word, tickets_[rank].value}; }
    /// How many ranks came with the flag; once that is known.
    std::size_t flagged() const;
    /// False while messages are under way: the memory they are written to must then not be freed.
    bool decided() const { return phase_ == Phase::kDecided; }

    /// Once agreed: bytes allocated.
    std::size_t bytes() const { return tickets_.size() * sizeof(Ticket) + reasons_.size() * sizeof(Reason); }

  private:
    struct Ticket {
        std::uint16_t status;
        std::uint16_t flag;
        std::uint32_t word;
        std::uint64_t value;
    };
    using Reason = std::array<char, 256>;
    enum class Phase { kSendTickets, kAwaitTickets, kAwaitReasons, kDecided };

    Agreement(int rank, int size);
    static bool is_bad(const Ticket& ticket) { return ticket.status != ONEBIT_SUCCESS; }
    /// The first rank with a bad(ticket); the number of ranks: there is none.
    template <typename Bad>
    std::size_t first_rank(const Bad& bad) const {
        std::size_t rank = 0;
        while (rank < ranks() && !bad(tickets_[rank])) ++rank;
        return rank;
    }
    Status judge(Step* step);
    Status compare() const;
    Status first_failure() const;
    void decide(Status verdict, Step* step);

    std::size_t rank_;
    Phase phase_ = Phase::kSendTickets;
    std::vector<Ticket> tickets_; ///< by rank
    std::vector<Reason> reasons_; ///< by rank
    std::array<const char*, 2> what_{};
    Status verdict_;
    std::unique_ptr<Exchange> ticket_exchange_;
    std::unique_ptr<Exchange> reason_exchange_;
};

/// Begins an agreement and waits for its verdict. Where the verdict doesn't come (TIMEOUT, TRANSPORT), decided() stays
/// false. Blocks, and calls `meanwhile` repeatedly. `meanwhile` says whether something moved: as long as something
/// moves, no rank is late. Its failure ends the wait.
Status decide_now(Agreement& agreement, const Patience& patience, const Status& own, std::uint32_t word = 0,
                  std::uint64_t value = 0, std::array<const char*, 2> what = {},
                  const std::function<Status(bool*)>& meanwhile = {});

/// Sends and receives of an all-gather: `bytes` for each rank, in rank order at `all`.
Status plan_all_gather(Transport& transport, int tag, void* all, std::size_t bytes,
                       std::unique_ptr<Exchange>* exchange);

} // namespace onebit
