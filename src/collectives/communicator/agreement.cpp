// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/agreement.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/wait.hpp"
#include "schedule/bruck.hpp"

namespace onebit {

namespace {

/// Few hops, and few messages in each: 4 and 12 for 256 ranks. Between few ranks each hop has one message: where ranks
/// share cores, every message that is waited for takes a time slice.
std::size_t radix_for(std::size_t ranks) {
    return ranks < kManyRanks ? 2 : 4;
}

} // namespace

Status plan_all_gather(Transport& transport, int tag, void* all, std::size_t bytes,
                       std::unique_ptr<Exchange>* exchange) {
    const auto ranks = static_cast<std::size_t>(transport.size());
    std::vector<std::size_t> offsets;
    for (std::size_t rank = 0; rank <= ranks; ++rank) offsets.push_back(rank * bytes);
    // A GPU's stream has all messages of a hop under way at once, and waits for each hop: one hop.
    const bool straight = transport.is_stream_ordered() && ranks < kManyRanks;
    const std::size_t radix = straight ? kManyRanks : radix_for(ranks);
    return plan_bruck_all_gather(transport, tag, radix, all, offsets, exchange);
}

Agreement::Agreement(int rank, int size)
    : rank_(static_cast<std::size_t>(rank)),
      tickets_(static_cast<std::size_t>(size)),
      reasons_(static_cast<std::size_t>(size)) {}

Status Agreement::create(Transport& transport, int tag, std::unique_ptr<Agreement>* agreement) {
    std::unique_ptr<Agreement> made(new Agreement(transport.rank(), transport.size()));
    ONEBIT_RETURN_IF_ERROR(
        plan_all_gather(transport, tag, made->tickets_.data(), sizeof(Ticket), &made->ticket_exchange_));
    ONEBIT_RETURN_IF_ERROR(
        plan_all_gather(transport, tag + 1, made->reasons_.data(), sizeof(Reason), &made->reason_exchange_));
    *agreement = std::move(made);
    return {};
}

void Agreement::begin(const Status& own, std::uint32_t word, std::uint64_t value, std::array<const char*, 2> what,
                      bool flag) {
    what_ = what;
    tickets_[rank_] = {static_cast<std::uint16_t>(own.code()), static_cast<std::uint16_t>(flag), word, value};
    Reason& reason = reasons_[rank_];
    const std::size_t length = std::min(own.message().size(), reason.size() - 1);
    std::memcpy(reason.data(), own.message().data(), length);
    reason[length] = '\0';
    phase_ = Phase::kSendTickets;
}

Status Agreement::advance(Step* step) {
    if (phase_ == Phase::kSendTickets) {
        ONEBIT_RETURN_IF_ERROR(ticket_exchange_->start());
        phase_ = Phase::kAwaitTickets;
    }
    bool done = false;
    if (phase_ == Phase::kAwaitTickets) {
        ONEBIT_RETURN_IF_ERROR(ticket_exchange_->test(&done));
        if (done) return judge(step);
    } else {
        ONEBIT_RETURN_IF_ERROR(reason_exchange_->test(&done));
        if (done) {
            decide(first_failure(), step);
            return {};
        }
    }
    *step = Step::kWait;
    return {};
}

/// All tickets are here, the same on every rank, so all ranks take the same way from here.
Status Agreement::judge(Step* step) {
    if (all_ready()) {
        decide(compare(), step);
        return {};
    }
    phase_ = Phase::kAwaitReasons;
    *step = Step::kAgain;
    return reason_exchange_->start();
}

void Agreement::decide(Status verdict, Step* step) {
    verdict_ = std::move(verdict);
    phase_ = Phase::kDecided;
    *step = Step::kDone;
}

bool Agreement::same_word() const {
    return first_rank([&](const Ticket& other) { return other.word != tickets_[0].word; }) == ranks();
}

std::size_t Agreement::flagged() const {
    const auto has_flag = [](const Ticket& ticket) { return ticket.flag != 0; };
    return static_cast<std::size_t>(std::count_if(tickets_.begin(), tickets_.end(), has_flag));
}

Status Agreement::compare() const {
    const Ticket& first = tickets_[0];
    const std::size_t r =
        first_rank([&](const Ticket& other) { return other.word != first.word || other.value != first.value; });
    if (r == ranks()) return {};
    const Ticket& other = tickets_[r];
    if (other.word != first.word) {
        return Status::error(ONEBIT_ERROR_MISMATCH, "the ranks disagree on %s: rank 0 has %u, rank %zu has %u",
                             what_[0], first.word, r, other.word);
    }
    return Status::error(ONEBIT_ERROR_MISMATCH, "the ranks disagree on %s: rank 0 has %llu, rank %zu has %llu",
                         what_[1], static_cast<unsigned long long>(first.value), r,
                         static_cast<unsigned long long>(other.value));
}

Status Agreement::first_failure() const {
    const std::size_t rank = first_rank(&Agreement::is_bad);
    const Reason& reason = reasons_[rank];
    return Status::error(told_status(tickets_[rank].status), "rank %zu: %.*s", rank, static_cast<int>(reason.size()),
                         reason.data());
}

Status decide_now(Agreement& agreement, const Patience& patience, const Status& own, std::uint32_t word,
                  std::uint64_t value, std::array<const char*, 2> what, const std::function<Status(bool*)>& meanwhile) {
    agreement.begin(own, word, value, what);
    ONEBIT_RETURN_IF_ERROR(wait_until_done("agreement", patience, [&](bool* done, bool* moved) {
        Step step = Step::kDone;
        const Status status = agreement.advance(&step); // the first call sends
        *done = agreement.decided();
        return status.ok() && !*done && meanwhile ? meanwhile(moved) : status;
    }));
    return agreement.verdict();
}

} // namespace onebit
