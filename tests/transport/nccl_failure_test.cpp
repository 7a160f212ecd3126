// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A missing NCCL, or one that doesn't work as it should.

#include <atomic>
#include <string>

#include "core/aligned_buffer.hpp"
#include "support/catch2.hpp"
#include "support/emulated_device.hpp"
#include "support/nccl_ranks.hpp"

namespace onebit {
namespace {

using onebit_test::EmulatedNccl;
using onebit_test::run_nccl_ranks;

struct Outcome {
    Status status;
    Status later;
};

/// An exchange of four bytes in the GPU's memory with every other rank.
struct Words {
    explicit Words(Transport& transport)
        : memory(nullptr), words(static_cast<std::size_t>(2 * transport.size()), memory) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (int peer = 0; peer < transport.size(); ++peer) {
            if (peer == transport.rank()) continue;
            sends.push_back({peer, words.data() + 2 * peer, sizeof(float), true});
            receives.push_back({peer, words.data() + 2 * peer + 1, sizeof(float), true});
        }
        (void)transport.plan_exchange(sends, receives, 0, &exchange);
    }

    cuda::DeviceMemory memory;
    AlignedBuffer<float> words;
    std::unique_ptr<Exchange> exchange;
};

template <typename Operation>
Status finish(Operation& operation) {
    for (bool done = false; !done; std::this_thread::yield()) ONEBIT_RETURN_IF_ERROR(operation.test(&done));
    return {};
}

TEST_CASE("a stream of another GPU than the communicator's is refused", "[nccl]") {
    EmulatedNccl nccl;
    const std::vector<ncclComm*> comms = nccl.make_comms(1, true); // on GPU 0
    std::unique_ptr<Transport> transport;
    const Status refused = make_nccl_transport(EmulatedNccl::api(), comms[0], onebit_test::stream_of_gpu(3),
                                               onebit_test::kNcclTimeout, &transport);
    CHECK(refused.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK(refused.message() == "stream: it is of GPU 3, nccl_comm is of GPU 0");
    onebit_test::set_current_gpu(2);
    const Status by_default =
        make_nccl_transport(EmulatedNccl::api(), comms[0], nullptr, onebit_test::kNcclTimeout, &transport);
    CHECK(by_default.message() ==
          "stream: NULL is the default stream of the current GPU, that is of GPU 2, nccl_comm is of GPU 0");
    const Status good = make_nccl_transport(EmulatedNccl::api(), comms[0], onebit_test::stream_of_gpu(0),
                                            onebit_test::kNcclTimeout, &transport);
    CHECK(good.message().empty());
    onebit_test::set_current_gpu(0);
}

TEST_CASE("a stream that is another one in each thread is refused", "[nccl]") {
    EmulatedNccl nccl;
    const std::vector<ncclComm*> comms = nccl.make_comms(1, true);
    std::unique_ptr<Transport> transport;
    const Status refused = make_nccl_transport(EmulatedNccl::api(), comms[0], onebit_test::stream_per_thread(),
                                               onebit_test::kNcclTimeout, &transport);
    CHECK(refused.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("an error of NCCL's comes out of the next test, in its words", "[nccl]") {
    EmulatedNccl nccl;
    std::atomic<bool> over = false;
    const auto outcomes =
        run_nccl_ranks<Outcome>(nccl, 2, [&](std::unique_ptr<Transport> transport, Outcome* outcome) -> Status {
            Words words(*transport);
            if (transport->rank() == 1) { // never starts
                while (!over) std::this_thread::yield();
                transport->give_up({});
                transport->give_up({}); // once is enough, twice does no harm
                return {};
            }
            ONEBIT_RETURN_IF_ERROR(words.exchange->start());
            bool done = true;
            ONEBIT_RETURN_IF_ERROR(words.exchange->test(&done));
            EmulatedNccl::fail(0, nccl::kRemoteError, "rank 1 hung up");
            const Status status = finish(*words.exchange);
            outcome->later = words.exchange->start();
            transport->give_up({});
            over = true;
            return status;
        });
    CHECK(outcomes[0].status.code() == ONEBIT_ERROR_TRANSPORT);
    CHECK_THAT(outcomes[0].status.message(), ContainsSubstring("remote error") && ContainsSubstring("rank 1 hung up"));
    CHECK(outcomes[0].later.message() == outcomes[0].status.message());
    CHECK(outcomes[1].status.ok());
    CHECK(EmulatedNccl::aborted() == 2);
}

TEST_CASE("an error is told to who asks again about what is done", "[nccl]") {
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(nccl, 1, [&](std::unique_ptr<Transport> transport, Outcome*) {
        std::unique_ptr<Exchange> exchange;
        int from = 1;
        int to = 2;
        (void)transport->plan_exchange({{0, &from, sizeof(from)}}, {{0, &to, sizeof(to)}}, 0, &exchange);
        ONEBIT_RETURN_IF_ERROR(exchange->start());
        ONEBIT_RETURN_IF_ERROR(finish(*exchange));
        EmulatedNccl::fail(0, nccl::kRemoteError, "gone");
        return finish(*exchange);
    });
    CHECK(outcomes[0].status.code() == ONEBIT_ERROR_TRANSPORT);
    CHECK(EmulatedNccl::aborted() == 1); // a broken communicator isn't finalised
}

TEST_CASE("given up, the operations in flight end, and none begins", "[nccl]") {
    EmulatedNccl nccl;
    const auto outcomes =
        run_nccl_ranks<Outcome>(nccl, 2, [&](std::unique_ptr<Transport> transport, Outcome* outcome) -> Status {
            Words first(*transport);
            Words second(*transport);
            if (transport->rank() == 0) {
                ONEBIT_RETURN_IF_ERROR(first.exchange->start());
                ONEBIT_RETURN_IF_ERROR(second.exchange->start());
            }
            transport->give_up({});
            outcome->later = second.exchange->start();
            return finish(*first.exchange);
        });
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.status.code() == ONEBIT_ERROR_TRANSPORT);
        CHECK_THAT(outcome.status.message(), ContainsSubstring("given up"));
        CHECK(outcome.later.code() == ONEBIT_ERROR_TRANSPORT);
    }
    CHECK(EmulatedNccl::aborted() == 2);
}

TEST_CASE("given up, a channel takes along all that share its stream, if it has given that anything", "[nccl]") {
    EmulatedNccl nccl;
    const auto outcomes =
        run_nccl_ranks<Outcome>(nccl, 2, [&](std::unique_ptr<Transport> transport, Outcome* outcome) -> Status {
            std::unique_ptr<Transport> other;
            ONEBIT_RETURN_IF_ERROR(transport->duplicate(kFewTags, &other));
            Words words(*transport);
            Words words_of_other(*other);
            if (transport->rank() == 0) ONEBIT_RETURN_IF_ERROR(words.exchange->start()); // and waits for the other rank
            transport->give_up({});
            outcome->later = words_of_other.exchange->start();
            other->give_up({});
            return {};
        });
    for (const Outcome& outcome : outcomes) CHECK(outcome.status.ok());
    CHECK(outcomes[0].later.code() == ONEBIT_ERROR_TRANSPORT);
    CHECK_THAT(outcomes[0].later.message(),
               ContainsSubstring("with another communicator of its stream") && ContainsSubstring("was given up"));
    CHECK(outcomes[1].later.message().empty());
    CHECK(EmulatedNccl::aborted() == 4);
}

TEST_CASE("a rank that never comes is a timeout, where the user's communicator doesn't block", "[nccl]") {
    EmulatedNccl nccl;
    const auto comms = nccl.make_comms(2, false);
    std::unique_ptr<Transport> transport;
    const Status status = make_nccl_transport(EmulatedNccl::api(), comms[0], nullptr, 0.05, &transport);
    CHECK(status.code() == ONEBIT_ERROR_TIMEOUT);
    CHECK_THAT(status.message(), ContainsSubstring("ncclCommSplit"));
    const Status busy = make_nccl_transport(EmulatedNccl::api(), comms[0], nullptr, 0.05, &transport);
    CHECK(busy.code() == ONEBIT_ERROR_INVALID_ARGUMENT); // it still waits
    CHECK(make_nccl_transport(EmulatedNccl::api(), nullptr, nullptr, 1, &transport).code() ==
          ONEBIT_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("ranks that start in another order than each other learn so, and don't hang", "[nccl]") {
    EmulatedNccl nccl;
    const auto outcomes = run_nccl_ranks<Outcome>(nccl, 2, [&](std::unique_ptr<Transport> transport, Outcome*) {
        Words words(*transport);
        std::unique_ptr<Sum> sum;
        ONEBIT_RETURN_IF_ERROR(transport->plan_sum(1, &sum));
        if (transport->rank() == 0) ONEBIT_RETURN_IF_ERROR(words.exchange->start());
        ONEBIT_RETURN_IF_ERROR(sum->start(words.words.data(), words.words.data()));
        if (transport->rank() == 1) ONEBIT_RETURN_IF_ERROR(words.exchange->start());
        ONEBIT_RETURN_IF_ERROR(finish(*words.exchange));
        return finish(*sum);
    });
    CHECK_FALSE((outcomes[0].status.ok() && outcomes[1].status.ok()));
    CHECK_FALSE(nccl.take_complaints().empty());
}

TEST_CASE("a library that is missing, too old or lacks something says so", "[nccl]") {
    NcclApi api;
    const Status missing = load_nccl("libnccl-of-nowhere.so.2", &api);
    CHECK(missing.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(missing.message(), ContainsSubstring("libnccl-of-nowhere.so.2: cannot open"));
    const Status old = load_nccl(ONEBIT_TEST_OLD_NCCL, &api);
    CHECK(old.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(old.message(), ContainsSubstring("version 2.18.5, older than 2.19.0"));
    const Status poor = load_nccl(ONEBIT_TEST_POOR_NCCL, &api);
    CHECK(poor.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(poor.message(), ContainsSubstring("has no ncclGetErrorString"));
    CHECK(api.get_version == nullptr);

    const NcclApi* first = nullptr;
    const NcclApi* second = nullptr;
    CHECK(find_nccl_api(&first).code() == find_nccl_api(&second).code()); // there or not
    CHECK(first == second);
}

#ifdef ONEBIT_TEST_NCCL
TEST_CASE("NCCL itself is loaded, with all that is called", "[nccl]") {
    NcclApi api;
    const Status status = load_nccl(ONEBIT_TEST_NCCL, &api);
    CHECK(status.message() == "");
    int version = 0;
    REQUIRE(api.get_version != nullptr);
    CHECK(api.get_version(&version) == nccl::kSuccess);
    CHECK(version >= NcclApi::kOldest);
    CHECK((api.all_to_all != nullptr) == (version >= 22800));
    CHECK(std::string(api.get_error_string(nccl::kInvalidUsage)) ==
          "invalid usage (run with NCCL_DEBUG=WARN for details)");
}
#endif

} // namespace
} // namespace onebit
