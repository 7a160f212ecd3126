// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Cases that only the in-process transport can show: peers that leave, wrong message sizes, and unanswered calls.

#include "transport/loopback.hpp"

#include <onebit/onebit.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "support/catch2.hpp"
#include "support/environment.hpp"

namespace onebit {
namespace {

TEST_CASE("a peer that has left is an error, not a hang", "[loopback]") {
    auto transports = make_loopback_transports(2);
    int value = 0;
    std::unique_ptr<Exchange> exchange;
    REQUIRE(transports[0]->plan_exchange({}, {{1, &value, sizeof(value)}}, 0, &exchange).ok());
    REQUIRE(exchange->start().ok());
    bool done = true;
    REQUIRE(exchange->test(&done).ok());
    CHECK_FALSE(done);
    transports[1].reset();
    const Status status = exchange->test(&done);
    CHECK(status.code() == ONEBIT_ERROR_TRANSPORT);
    CHECK_THAT(status.message(), ContainsSubstring("rank 1"));
}

TEST_CASE("a message of another length than expected is an error", "[loopback]") {
    auto transports = make_loopback_transports(2);
    std::array<int, 2> sent{};
    int received = 0;
    std::unique_ptr<Exchange> send;
    std::unique_ptr<Exchange> receive;
    REQUIRE(transports[0]->plan_exchange({{1, sent.data(), sizeof(sent)}}, {}, 0, &send).ok());
    REQUIRE(transports[1]->plan_exchange({}, {{0, &received, sizeof(received)}}, 0, &receive).ok());
    REQUIRE(send->start().ok());
    REQUIRE(receive->start().ok());
    bool done = false;
    CHECK(receive->test(&done).code() == ONEBIT_ERROR_TRANSPORT);
}

TEST_CASE("channels and tags keep messages apart", "[loopback]") {
    auto transports = make_loopback_transports(2);
    std::unique_ptr<Transport> channels[2];
    for (int r = 0; r < 2; ++r)
        REQUIRE(transports[static_cast<std::size_t>(r)]->duplicate(kFewTags, &channels[r]).ok());
    int values[3] = {10, 20, 30};
    int received[3] = {};
    std::vector<std::unique_ptr<Exchange>> exchanges(6);
    Transport* const from[3] = {transports[0].get(), transports[0].get(), channels[0].get()};
    Transport* const to[3] = {transports[1].get(), transports[1].get(), channels[1].get()};
    const int tags[3] = {0, 1, 0};
    for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(from[i]->plan_exchange({{1, &values[i], sizeof(int)}}, {}, tags[i], &exchanges[i]).ok());
        REQUIRE(to[i]->plan_exchange({}, {{0, &received[i], sizeof(int)}}, tags[i], &exchanges[3 + i]).ok());
    }
    for (const std::size_t i : {2, 1, 0, 3, 4, 5}) REQUIRE(exchanges[i]->start().ok());
    for (const auto& exchange : exchanges) {
        bool done = false;
        CHECK(exchange->test(&done).ok());
    }
    CHECK((received[0] == 10 && received[1] == 20 && received[2] == 30));
}

/// Two communicators whose calls give up after a second: enough for a busy machine to answer in.
std::array<onebit_comm_t, 2> impatient_communicators() {
    const onebit_test::Variable timeout("ONEBIT_TIMEOUT", "1");
    std::array<onebit_comm_t, 2> comms{};
    REQUIRE(onebit_comm_create_loopback(2, comms.data()) == ONEBIT_SUCCESS);
    return comms;
}

void destroy(const std::array<onebit_comm_t, 2>& comms) {
    for (onebit_comm_t comm : comms) CHECK(onebit_comm_destroy(comm) == ONEBIT_SUCCESS);
}

TEST_CASE("a creation that no peer answers ends with TIMEOUT and breaks the communicator", "[loopback]") {
    const auto comms = impatient_communicators();
    onebit_allreduce_t allreduce = nullptr;
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(100);
    CHECK(onebit_allreduce_create(comms[0], &config, &allreduce) == ONEBIT_ERROR_TIMEOUT);
    CHECK_THAT(std::string(onebit_last_error()), ContainsSubstring("ONEBIT_TIMEOUT"));
    CHECK(onebit_allreduce_create(comms[0], &config, &allreduce) == ONEBIT_ERROR_TIMEOUT);
    CHECK_THAT(std::string(onebit_last_error()), ContainsSubstring("broken"));
    destroy(comms);
}

TEST_CASE("a call that no peer answers names its stage and breaks the handle", "[loopback]") {
    for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE}) {
        for (const onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            CAPTURE(check, algorithm);
            const auto comms = impatient_communicators();
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(100);
            config.check = check;
            config.algorithm = algorithm;
            std::array<onebit_allreduce_t, 2> handles{};
            std::thread other([&] { onebit_allreduce_create(comms[1], &config, &handles[1]); });
            CHECK(onebit_allreduce_create(comms[0], &config, &handles[0]) == ONEBIT_SUCCESS);
            other.join();

            {
                std::vector<float> gone_when_the_peer_comes(100, 1.0F);
                float* const data = gone_when_the_peer_comes.data();
                CHECK(onebit_allreduce_run(handles[0], data, data) == ONEBIT_ERROR_TIMEOUT);
                CHECK_THAT(std::string(onebit_last_error()), ContainsSubstring("stage"));
                CHECK(onebit_allreduce_run(handles[0], data, data) == ONEBIT_ERROR_TIMEOUT);
                CHECK_THAT(std::string(onebit_last_error()), ContainsSubstring("broken"));
                CHECK(onebit_allreduce_destroy(handles[0]) == ONEBIT_SUCCESS);
            }
            std::vector<float> late(100, 1.0F);
            const onebit_status_t status = onebit_allreduce_run(handles[1], late.data(), late.data());
            CHECK((status == ONEBIT_ERROR_TRANSPORT || status == ONEBIT_ERROR_TIMEOUT));
            CHECK(onebit_allreduce_destroy(handles[1]) == ONEBIT_SUCCESS);
            destroy(comms);
        }
    }
}

TEST_CASE("impossible environment variables are refused by name", "[loopback]") {
    const std::pair<const char*, const char*> variables[] = {
        {"ONEBIT_TIMEOUT", "soon"},    {"ONEBIT_THREADS", "0"},       {"ONEBIT_KERNELS", "mmx"},
        {"ONEBIT_ALGORITHM", "magic"}, {"ONEBIT_THREADS", "2 cores"}, {"ONEBIT_LOG", "loud"},
        {"ONEBIT_TIMEOUT", "nan"},     {"ONEBIT_THREADS", "1.5"},     {"ONEBIT_PIECE", "0"},
        {"ONEBIT_NODE_SIZE", "none"},  {"ONEBIT_RADIX", "1"},         {"ONEBIT_MEASURE", "2"},
        {"ONEBIT_GPU_PATH", "fast"},   {"ONEBIT_SECOND_ERROR", "0"},  {"ONEBIT_DETERMINISTIC", "yes"}};
    for (const auto& [name, value] : variables) {
        const onebit_test::Variable set(name, value);
        onebit_comm_t comm = nullptr;
        CHECK(onebit_comm_create_loopback(1, &comm) == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(std::string(onebit_last_error()), ContainsSubstring(name) && ContainsSubstring(value));
    }
}

} // namespace
} // namespace onebit
