// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators below the C interface: if ranks can't work together, or a rank can't do its part, all ranks are told at
// once.

#include "collectives/communicator/communicator.hpp"

#include <string>
#include <utility>
#include <vector>

#include "support/catch2.hpp"
#include "support/environment.hpp"
#include "support/loopback_ranks.hpp"
#include "transport/forwarding.hpp"

namespace onebit {
namespace {

struct Outcome {
    Status status;
};

/// A loopback that has no memory left for exchanges of one tag.
class Exhausted final : public ForwardingTransport {
  public:
    Exhausted(std::unique_ptr<Transport> inner, int tag) : ForwardingTransport(std::move(inner)), tag_(tag) {}

    Status plan_exchange(std::vector<Part> sends, std::vector<Part> receives, int tag,
                         std::unique_ptr<Exchange>* exchange) override {
        if (tag == tag_) throw std::bad_alloc();
        return inner_->plan_exchange(std::move(sends), std::move(receives), tag, exchange);
    }

  private:
    int tag_;
};

bool is_last(const Transport& transport) {
    return transport.rank() + 1 == transport.size();
}

/// The first message of a rank with another library.
Status join_with(std::uint32_t wire_format, std::uint64_t version, Transport& transport) {
    std::unique_ptr<Agreement> agreement;
    ONEBIT_RETURN_IF_ERROR(Agreement::create(transport, 0, &agreement));
    return decide_now(*agreement, {5, transport.abort_switch()}, {}, wire_format, version, {"", ""});
}

/// The last rank has another library than the others; their messages must hold `told`.
void check_mixed(std::uint32_t wire_format, std::uint64_t version, const std::string& told) {
    for (const std::size_t n : {2U, 3U, 9U}) {
        const auto outcomes =
            onebit_test::run_loopback_ranks<Outcome>(n, [&](std::unique_ptr<Transport> transport, Outcome*) {
                if (is_last(*transport)) return join_with(wire_format, version, *transport);
                std::unique_ptr<Communicator> communicator;
                return Communicator::create(std::move(transport), {}, &communicator);
            });
        for (std::size_t r = 0; r < n; ++r) {
            CHECK(outcomes[r].status.code() == ONEBIT_ERROR_MISMATCH);
            if (r + 1 < n) {
                CHECK_THAT(outcomes[r].status.message(),
                           ContainsSubstring(told) && ContainsSubstring("rank " + std::to_string(n - 1) + " has"));
            }
        }
    }
}

TEST_CASE("ranks with libraries of different versions get no communicator", "[comm][bad input]") {
    const onebit_test::Variable patience("ONEBIT_TIMEOUT", "5");
    constexpr int kMinor = 100;
    check_mixed(1, version_to_agree_on(ONEBIT_VERSION_NUMBER + kMinor), "version of onebit (100 times major");
    check_mixed(2, version_to_agree_on(ONEBIT_VERSION_NUMBER), "version of the wire format");
}

TEST_CASE("ranks with libraries of different patch levels agree on their version", "[comm]") {
    constexpr std::uint32_t kWireFormat = 1;
    constexpr int kFirst = ONEBIT_VERSION_NUMBER - ONEBIT_VERSION_PATCH;
    // The last rank finds no objection, and leaves; the first rank finds none either, and misses the last one
    // afterwards.
    for (const int number : {kFirst, kFirst + 1, kFirst + 99}) {
        const auto outcomes =
            onebit_test::run_loopback_ranks<Outcome>(2, [&](std::unique_ptr<Transport> transport, Outcome*) {
                if (is_last(*transport)) return join_with(kWireFormat, version_to_agree_on(number), *transport);
                std::unique_ptr<Communicator> communicator;
                return Communicator::create(std::move(transport), {}, &communicator);
            });
        CHECK(outcomes[1].status.ok());
        CHECK(outcomes[0].status.code() == ONEBIT_ERROR_TRANSPORT);
    }
}

TEST_CASE("a rank without memory for a gather says so to the others", "[comm][failure]") {
    const onebit_test::Variable patience("ONEBIT_TIMEOUT", "5");
    constexpr int kGatherTag = 2; // the communicator's own
    const auto outcomes =
        onebit_test::run_loopback_ranks<Outcome>(3, [&](std::unique_ptr<Transport> transport, Outcome*) {
            if (is_last(*transport)) transport = std::make_unique<Exhausted>(std::move(transport), kGatherTag);
            std::unique_ptr<Communicator> communicator;
            return Communicator::create(std::move(transport), {}, &communicator); // gathers tuning tables
        });
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.status.code() == ONEBIT_ERROR_OUT_OF_MEMORY);
        CHECK_THAT(outcome.status.message(), ContainsSubstring("rank 2"));
    }
}

} // namespace
} // namespace onebit
