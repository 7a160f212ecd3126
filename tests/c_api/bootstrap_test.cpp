// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Ranks without MPI: errors before the ranks have met.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "support/rank_runner.hpp"

namespace {

using onebit_test::holds;
using onebit_test::RankLog;

// The outcome of one rank's creation.
struct Outcome {
    onebit_status_t status = ONEBIT_SUCCESS;
    std::string message;
    double seconds = 0;
};

// The allgather rounds of a creation.
constexpr int kRounds = 4;
constexpr int kInvitations = 2;

// Lets a test change the bytes that a rank has gathered. Returns the status of the rank's allgather.
using Tamper = std::function<int(int round, int rank, void* all, std::size_t bytes)>;

struct Context {
    RankLog& log;
    const Tamper& tamper;
    int round = 0;
};

int gather(void* context, const void* mine, void* all, std::size_t bytes) {
    Context& own = *static_cast<Context*>(context);
    onebit_test::gather_into(own.log, mine, all, bytes);
    const int round = own.round++;
    return own.tamper ? own.tamper(round, own.log.rank(), all, bytes) : 0;
}

// Creates a communicator of ranks that are threads.
std::vector<Outcome> create(int ranks, const std::function<void(onebit_bootstrap_t*)>& change,
                            const Tamper& tamper = {}) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    onebit_test::run_as_threads(ranks, [&](RankLog& log) {
        Context context = {log, tamper};
        onebit_bootstrap_t bootstrap = ONEBIT_BOOTSTRAP_INIT(log.rank(), ranks, gather, &context);
        bootstrap.timeout = 2;
        if (change) change(&bootstrap);
        onebit_comm_t comm = nullptr;
        const auto begin = std::chrono::steady_clock::now();
        Outcome& outcome = outcomes[static_cast<std::size_t>(log.rank())];
        outcome.status = onebit_comm_create_bootstrap(&bootstrap, &comm);
        if (outcome.status != ONEBIT_SUCCESS) outcome.message = onebit_last_error();
        outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        ONEBIT_EXPECT(log, (comm == nullptr) == (outcome.status != ONEBIT_SUCCESS));
        log.barrier(); // no rank leaves before all have finished
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
    });
    return outcomes;
}

// Addresses with a listener, in the round of invitations: IPv4's family, the port, 4 bytes of prefix, address.
std::vector<sockaddr_in> find_addresses(const void* all, std::size_t bytes) {
    std::vector<sockaddr_in> found;
    const auto* const record = static_cast<const unsigned char*>(all);
    for (std::size_t at = 0; at + 12 <= bytes; at += 4) {
        std::array<std::uint16_t, 2> family_and_port;
        std::memcpy(&family_and_port, record + at, sizeof family_and_port);
        sockaddr_in address{};
        std::memcpy(&address.sin_addr, record + at + 8, 4);
        address.sin_family = AF_INET;
        address.sin_port = htons(family_and_port[1]);
        if (family_and_port[0] == AF_INET && family_and_port[1] != 0) found.push_back(address);
    }
    return found;
}

TEST_CASE("a bootstrap that is none is refused at once", "[bootstrap][bad input]") {
    const auto never = [](void*, const void*, void*, std::size_t) { return 1; };
    onebit_comm_t comm = nullptr;
    CHECK(onebit_comm_create_bootstrap(nullptr, &comm) == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK(holds(onebit_last_error(), "bootstrap is NULL"));
    onebit_bootstrap_t bootstrap = ONEBIT_BOOTSTRAP_INIT(0, 2, never, nullptr);
    const auto refuses = [&](const char* needles) {
        CHECK(onebit_comm_create_bootstrap(&bootstrap, &comm) == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK(holds(onebit_last_error(), needles));
        CHECK(comm == nullptr);
        bootstrap = ONEBIT_BOOTSTRAP_INIT(0, 2, never, nullptr);
    };
    bootstrap.size = 3;
    refuses("bootstrap;size");
    bootstrap.ranks = 0;
    refuses("ranks;0");
    bootstrap.rank = 2;
    refuses("rank;2;0 to 1");
    bootstrap.rank = -1;
    refuses("rank;-1");
    bootstrap.allgather = nullptr;
    refuses("allgather is NULL");
    CHECK(onebit_comm_create_bootstrap(&bootstrap, nullptr) != ONEBIT_SUCCESS);
    CHECK(onebit_comm_create_bootstrap(&bootstrap, &comm) == ONEBIT_ERROR_TRANSPORT);
    CHECK(holds(onebit_last_error(), "allgather;returned 1"));
}

TEST_CASE("one rank alone gathers nothing", "[bootstrap]") {
    onebit_bootstrap_t bootstrap{};
    const auto never = [](void*, const void*, void*, std::size_t) { return 1; };
    REQUIRE(onebit_bootstrap_init(&bootstrap, sizeof bootstrap, 0, 1, never, nullptr) == ONEBIT_SUCCESS);
    onebit_comm_t comm = nullptr;
    REQUIRE(onebit_comm_create_bootstrap(&bootstrap, &comm) == ONEBIT_SUCCESS);
    onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
    CHECK(onebit_comm_get_info(comm, &info) == ONEBIT_SUCCESS);
    CHECK(std::string(info.transport) == "tcp");
    CHECK(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
}

TEST_CASE("what is wrong on one rank all ranks hear of", "[bootstrap][bad input]") {
    const auto all_fail = [](const std::vector<Outcome>& outcomes, onebit_status_t status, const char* needles) {
        for (const Outcome& outcome : outcomes) {
            CHECK(outcome.status == status);
            INFO(outcome.message);
            CHECK(holds(outcome.message, needles));
            CHECK(outcome.seconds < 1.5);
        }
    };
    all_fail(create(3, [](onebit_bootstrap_t* b) { b->interface = b->rank == 1 ? "nowhere7" : nullptr; }),
             ONEBIT_ERROR_INVALID_ARGUMENT, "rank 1;nowhere7;lo");
    all_fail(create(3, [](onebit_bootstrap_t* b) { b->timeout = b->rank == 2 ? NAN : 2; }),
             ONEBIT_ERROR_INVALID_ARGUMENT, "rank 2;timeout");
}

TEST_CASE("interfaces go by name or by address", "[bootstrap]") {
    for (const char* const interface : {"lo", "127.0.0.1"}) {
        for (const Outcome& outcome : create(2, [&](onebit_bootstrap_t* b) { b->interface = interface; })) {
            INFO(outcome.message);
            CHECK(outcome.status == ONEBIT_SUCCESS);
        }
    }
}

TEST_CASE("a gathering that fails or brings nonsense is no meeting", "[bootstrap][bad input]") {
    for (int bad_round = 0; bad_round < kRounds; ++bad_round) {
        const auto failing = [&](int round, int, void*, std::size_t) { return round == bad_round ? 7 : 0; };
        for (const Outcome& outcome : create(2, {}, failing)) {
            CHECK(outcome.status == ONEBIT_ERROR_TRANSPORT);
            CHECK(holds(outcome.message, "allgather;7"));
        }
        // Zeros; fields in the wrong order; random bytes.
        for (const int way : {0, 1, 2}) {
            const auto tampering = [&](int round, int, void* all, std::size_t bytes) {
                auto* const records = static_cast<unsigned char*>(all);
                if (round != bad_round) return 0;
                if (way == 0) std::memset(all, 0, 2 * bytes);
                if (way == 1) std::swap_ranges(records, records + bytes, records + bytes);
                for (std::size_t i = 0; way == 2 && i < 2 * bytes; ++i)
                    records[i] = static_cast<unsigned char>(131 * i + 7);
                return 0;
            };
            for (const Outcome& outcome : create(2, {}, tampering)) {
                CHECK(outcome.status == ONEBIT_ERROR_INVALID_ARGUMENT);
                CHECK(holds(outcome.message, "allgather;rank 0;in order"));
            }
        }
    }
}

TEST_CASE("a rank that never connects is waited for no longer than the timeout", "[bootstrap][timeout]") {
    // In the last round the last rank's allgather fails.
    const auto leaving = [](int round, int rank, void*, std::size_t) {
        return round == kRounds - 1 && rank == 2 ? 1 : 0;
    };
    const std::vector<Outcome> outcomes = create(3, {}, leaving);
    for (const std::size_t r : {0, 1}) {
        INFO(outcomes[r].message);
        CHECK((outcomes[r].status == ONEBIT_ERROR_TIMEOUT || outcomes[r].status == ONEBIT_ERROR_TRANSPORT));
        CHECK(holds(outcomes[r].message, "rank"));
        CHECK(outcomes[r].seconds < 4);
    }
    CHECK(holds(outcomes[0].message + outcomes[1].message, "rank 2 at"));
}

TEST_CASE("who can't show the secret is turned away", "[bootstrap]") {
    // Strangers come first: silent ones, ones that send little, a lot, and a greeting with a wrong secret.
    std::vector<int> strangers;
    std::mutex mutex;
    const auto inviting_strangers = [&](int round, int rank, void* all, std::size_t bytes) {
        if (round != kInvitations || rank != 1) return 0;
        const std::lock_guard lock(mutex);
        for (const sockaddr_in& address : find_addresses(all, bytes)) { // rank 0's record
            for (int i = 0; i < 100; ++i) {
                const int stranger = socket(AF_INET, SOCK_STREAM, 0);
                strangers.push_back(stranger);
                if (connect(stranger, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) continue;
                std::vector<char> text(i % 3 == 0 ? 0 : i % 3 == 1 ? 5 : 4096, 'x');
                if (text.size() > 12 && i % 2 == 0) { // as if it were rank 1
                    std::memcpy(text.data(), "onebit01\1\0\0", 12);
                }
                (void)!send(stranger, text.data(), text.size(), MSG_NOSIGNAL);
            }
        }
        return 0;
    };
    for (const Outcome& outcome : create(2, {}, inviting_strangers)) {
        INFO(outcome.message);
        CHECK(outcome.status == ONEBIT_SUCCESS);
    }
    CHECK(strangers.size() >= 100);
    for (const int stranger : strangers) close(stranger);
}

TEST_CASE("a listener in a rank's place is no rank", "[bootstrap]") {
    // Rank 1 gets another secret for rank 0 than rank 0's own: as if another program listened there.
    const auto tampering = [](int round, int rank, void* all, std::size_t bytes) {
        if (round != kInvitations || rank != 1) return 0;
        auto* const record = static_cast<unsigned char*>(all);
        const std::size_t secret = bytes - 40 - 32; // before the address of the inbox
        record[secret + 3] ^= 1;
        return 0;
    };
    for (const Outcome& outcome : create(2, {}, tampering)) {
        INFO(outcome.message);
        CHECK((outcome.status == ONEBIT_ERROR_TRANSPORT || outcome.status == ONEBIT_ERROR_TIMEOUT));
        CHECK(holds(outcome.message, "rank"));
    }
}

} // namespace
