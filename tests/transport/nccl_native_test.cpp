// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Exchanges between all ranks by one call of NCCL's, an emulated one: the place where each row arrives, other memory
// unchanged, and an error on ranks which don't make the same call.

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "support/catch2.hpp"
#include "support/loopback_ranks.hpp"
#include "support/nccl_ranks.hpp"

namespace onebit {
namespace {

using onebit_test::EmulatedNccl;
using onebit_test::run_nccl_ranks;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kMargin = 5; ///< bytes around the received rows, so that the rows begin at an odd address

struct Outcome {
    Bytes received; ///< with margins
    std::uint64_t bytes_sent = 0;
    Status status;
};

/// A byte of the row that one rank sends to another; all-gathers send the same row to all.
std::byte value(int from, int to, std::size_t i, unsigned round) {
    const auto mixed =
        101 * static_cast<unsigned>(from) + 37 * static_cast<unsigned>(to) + 7 * i + i / 251 + 13 * round;
    return static_cast<std::byte>(1 + mixed % 251);
}

template <typename Operation>
Status finish(Operation& operation) {
    for (bool done = false; !done; std::this_thread::yield()) ONEBIT_RETURN_IF_ERROR(operation.test(&done));
    return {};
}

/// One rank's memory for a pattern: rows to be sent, and rows received, between margins.
class Rows {
  public:
    Rows(const Transport& transport, std::size_t row_bytes)
        : rank_(transport.rank()),
          ranks_(transport.size()),
          row_bytes_(row_bytes),
          memory_(nullptr),
          sent_(row_bytes * static_cast<std::size_t>(ranks_) + 1, memory_),
          received_(row_bytes * static_cast<std::size_t>(ranks_) + 2 * kMargin, memory_) {}

    Status plan(Transport& transport, Pattern pattern, bool in_place, std::unique_ptr<Exchange>* exchange) {
        in_place_ = in_place;
        gathers_ = pattern == Pattern::kAllGather;
        const std::byte* const from = in_place ? to() + row(rank_) : sent_.data() + 1;
        return transport.plan_native(pattern, from, to(), row_bytes_, exchange);
    }

    /// The sent rows in their places, and zeroes where nothing has come yet.
    void fill(unsigned round) {
        Bytes sent(sent_.size());
        Bytes received(received_.size());
        for (int peer = 0; peer < ranks_; ++peer) {
            for (std::size_t i = 0; i < row_bytes_; ++i) {
                if (!in_place_) sent[1 + row(peer) + i] = value(rank_, gathers_ ? 0 : peer, i, round);
                if (in_place_ && peer == rank_) received[kMargin + row(peer) + i] = value(rank_, 0, i, round);
            }
        }
        sent_.copy_from(sent.data());
        received_.copy_from(received.data());
    }
    Bytes received() {
        Bytes bytes(received_.size());
        received_.copy_to(bytes.data());
        return bytes;
    }

    static Bytes expected(int rank, int ranks, std::size_t row_bytes, bool gathers, unsigned round) {
        Bytes bytes(row_bytes * static_cast<std::size_t>(ranks) + 2 * kMargin);
        for (int from = 0; from < ranks; ++from) {
            for (std::size_t i = 0; i < row_bytes; ++i) {
                bytes[kMargin + static_cast<std::size_t>(from) * row_bytes + i] =
                    value(from, gathers ? 0 : rank, i, round);
            }
        }
        return bytes;
    }

  private:
    std::byte* to() { return received_.data() + kMargin; }
    std::size_t row(int peer) const { return static_cast<std::size_t>(peer) * row_bytes_; }

    int rank_;
    int ranks_;
    std::size_t row_bytes_;
    cuda::DeviceMemory memory_;
    AlignedBuffer<std::byte> sent_;
    AlignedBuffer<std::byte> received_;
    bool in_place_ = false;
    bool gathers_ = false;
};

TEST_CASE("rows arrive by one call of NCCL's, the own one too, and nothing beside them", "[nccl]") {
    struct Way {
        Pattern pattern;
        bool in_place;
    };
    const Way ways[] = {{Pattern::kAllToAll, false}, {Pattern::kAllGather, false}, {Pattern::kAllGather, true}};
    constexpr unsigned kRounds = 3;
    for (const Way& way : ways) {
        const bool gathers = way.pattern == Pattern::kAllGather;
        for (const int ranks : {1, 2, 3, 4, 5}) {
            for (const std::size_t row_bytes : {1, 3, 64, 1003}) {
                CAPTURE(gathers, way.in_place, ranks, row_bytes);
                EmulatedNccl nccl;
                const auto outcomes =
                    run_nccl_ranks<Outcome>(nccl, ranks, [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                        Rows rows(*transport, row_bytes);
                        std::unique_ptr<Exchange> exchange;
                        ONEBIT_RETURN_IF_ERROR(rows.plan(*transport, way.pattern, way.in_place, &exchange));
                        for (unsigned round = 0; round < kRounds; ++round) {
                            rows.fill(round);
                            ONEBIT_RETURN_IF_ERROR(exchange->start());
                            ONEBIT_RETURN_IF_ERROR(finish(*exchange));
                        }
                        outcome->received = rows.received();
                        outcome->bytes_sent = transport->bytes_sent();
                        return Status();
                    });
                for (int rank = 0; rank < ranks; ++rank) {
                    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
                    CHECK(outcome.status.message().empty());
                    CHECK(outcome.received == Rows::expected(rank, ranks, row_bytes, gathers, kRounds - 1));
                    CHECK(outcome.bytes_sent == kRounds * row_bytes * static_cast<std::size_t>(ranks - 1));
                }
                CHECK(EmulatedNccl::calls(gathers ? "ncclAllGather" : "ncclAlltoAll") ==
                      static_cast<int>(kRounds) * ranks);
                CHECK(EmulatedNccl::calls("ncclGroupEnd") == 0);
            }
        }
    }
}

TEST_CASE("an older NCCL has an all-gather, but no all-to-all; other transports have neither", "[nccl]") {
    struct Known {
        bool all_to_all = false;
        bool all_gather = false;
        Status planned;
        Status status;
    };
    const auto ask = [](std::unique_ptr<Transport> transport, Known* known) {
        known->all_to_all = transport->has_native(Pattern::kAllToAll);
        known->all_gather = transport->has_native(Pattern::kAllGather);
        return Status();
    };
    EmulatedNccl nccl;
    for (const bool older : {false, true}) {
        const NcclApi& api = older ? EmulatedNccl::older_api() : EmulatedNccl::api();
        for (const Known& known : run_nccl_ranks<Known>(nccl, 2, ask, true, api)) {
            CHECK(known.status.ok());
            CHECK(known.all_to_all == !older);
            CHECK(known.all_gather);
        }
    }
    const auto others =
        onebit_test::run_loopback_ranks<Known>(2, [&](std::unique_ptr<Transport> transport, Known* known) {
            std::unique_ptr<Exchange> exchange;
            known->planned = transport->plan_native(Pattern::kAllGather, nullptr, nullptr, 1, &exchange);
            return ask(std::move(transport), known);
        });
    for (const Known& known : others) {
        CHECK_FALSE((known.all_to_all || known.all_gather));
        CHECK(known.planned.code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(known.planned.message(), ContainsSubstring("loopback"));
    }
}

/// The emulated NCCL's complaints about ranks that plan exchanges, each in its own way.
using PlanOne = std::function<Status(Transport&, Rows&, std::unique_ptr<Exchange>*)>;

std::vector<std::string> complaints_about(int ranks, const std::function<PlanOne(int)>& plan_of) {
    EmulatedNccl nccl;
    const auto outcomes =
        run_nccl_ranks<Outcome>(nccl, ranks, [&](std::unique_ptr<Transport> transport, Outcome*) -> Status {
            Rows rows(*transport, 64);
            rows.fill(0);
            std::unique_ptr<Exchange> exchange;
            ONEBIT_RETURN_IF_ERROR(plan_of(transport->rank())(*transport, rows, &exchange));
            ONEBIT_RETURN_IF_ERROR(exchange->start());
            return finish(*exchange);
        });
    CHECK_FALSE(std::ranges::all_of(outcomes, [](const Outcome& outcome) { return outcome.status.ok(); }));
    return nccl.take_complaints();
}

PlanOne native(Pattern pattern) {
    return [=](Transport& transport, Rows& rows, std::unique_ptr<Exchange>* exchange) {
        return rows.plan(transport, pattern, false, exchange);
    };
}

TEST_CASE("a rank that sends messages where others call for all is found out", "[nccl]") {
    const Pattern pattern = GENERATE(Pattern::kAllToAll, Pattern::kAllGather);
    const int ranks = GENERATE(2, 3);
    cuda::DeviceMemory memory(nullptr);
    std::vector<AlignedBuffer<std::byte>> buffers;
    for (int rank = 0; rank < ranks; ++rank) buffers.emplace_back(2 * 64 * static_cast<std::size_t>(ranks), memory);
    const auto messages = [&](Transport& transport, Rows&, std::unique_ptr<Exchange>* exchange) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        std::byte* next = buffers[static_cast<std::size_t>(transport.rank())].data();
        for (int peer = 0; peer < ranks; ++peer, next += 2 * 64) {
            if (peer == transport.rank()) continue;
            sends.push_back({peer, next, 64, true});
            receives.push_back({peer, next + 64, 64, true});
        }
        return transport.plan_exchange(std::move(sends), std::move(receives), 0, exchange);
    };
    const auto complaints =
        complaints_about(ranks, [&](int rank) { return rank == 1 ? PlanOne(messages) : native(pattern); });
    const auto is_about_messages = [](const std::string& complaint) {
        return complaint.find("rank 1 sends messages where rank") != std::string::npos;
    };
    CHECK(std::ranges::any_of(complaints, is_about_messages));
}

TEST_CASE("ranks that make different calls for all are found out", "[nccl]") {
    const auto complaints =
        complaints_about(2, [](int rank) { return native(rank == 0 ? Pattern::kAllToAll : Pattern::kAllGather); });
    REQUIRE_FALSE(complaints.empty());
    CHECK_THAT(complaints[0], ContainsSubstring("ncclAllGather of 64 bytes where others call ncclAlltoAll"));
}

TEST_CASE("rows of different lengths are found out", "[nccl]") {
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(nccl, 2, [&](std::unique_ptr<Transport> transport, Outcome*) {
        Rows rows(*transport, transport->rank() == 0 ? 64 : 32);
        std::unique_ptr<Exchange> exchange;
        ONEBIT_RETURN_IF_ERROR(rows.plan(*transport, Pattern::kAllGather, false, &exchange));
        ONEBIT_RETURN_IF_ERROR(exchange->start());
        return finish(*exchange);
    });
    for (const Outcome& outcome : outcomes) CHECK(outcome.status.code() == ONEBIT_ERROR_TRANSPORT);
    const auto complaints = nccl.take_complaints();
    REQUIRE_FALSE(complaints.empty());
    CHECK_THAT(complaints[0], ContainsSubstring("ncclAllGather of 32 bytes where others call ncclAllGather of 64"));
}

} // namespace
} // namespace onebit
