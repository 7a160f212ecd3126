// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Exact averages of ranks that share memory: sums in rank order, whatever the way, the threads and the alignment.
#include <limits>

#include "support/environment.hpp"
#include "support/exact_averages.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t slice = std::uint64_t{1} << 17; // of all ranks, where there are few

// The fewest elements that go through shared memory, parts of uneven lengths, a slice and an element, more slices than
// slots with a short last one, so many that the result is written past the caches.
const std::vector<std::uint64_t> counts = {2048, 4099, slice + 1, 6 * slice + 77, 17 * slice + 5};

bool shares_memory(Allreduce& reduce) {
    return std::string(reduce.info().transport).find(", shared memory") != std::string::npos;
}

} // namespace

TEST_CASE("ranks of one node average exactly through shared memory, in rank order", "[shared][sizes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : counts) {
            for (const unsigned threads : {1u, 3u}) {
                log.context(std::to_string(count) + " elements, " + std::to_string(threads) + " threads");
                onebit_allreduce_config_t config = dense_config(count);
                config.threads = threads;
                Allreduce reduce(comm, config, log);
                ONEBIT_EXPECT(log, shares_memory(reduce) == (log.size() > 1));
                std::uint64_t step = 0;
                for (const bool in_place : {false, true}) {
                    for (const bool misaligned : {false, true}) {
                        Buffer input(count, misaligned), output(count, misaligned);
                        input.set(input_of(count, log.rank(), step));
                        Buffer& result = in_place ? input : output;
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), input.data(), result.data()));
                        ONEBIT_EXPECT(log, same_bits(result.get(), average(count, log.size(), step)));
                        ONEBIT_EXPECT(log, input.guards_intact() && output.guards_intact());
                        if (!in_place) ONEBIT_EXPECT(log, same_bits(input.get(), input_of(count, log.rank(), step)));
                        ++step;
                    }
                }
                const onebit_allreduce_info_t info = reduce.info();
                ONEBIT_EXPECT(log, info.calls == step && info.last_bytes_sent >= info.dense_bytes);
                ONEBIT_EXPECT(log, info.workspace_bytes <= (2u << 20) + (64u << 10)); // as onebit.h says
            }
        }
    });
}

TEST_CASE("calls through shared memory overlap, and no rank waits for another to collect", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 5 * slice + 3;
        Allreduce first(comm, dense_config(count), log), second(comm, dense_config(count), log);
        for (std::uint64_t step = 0; step < 12; ++step) {
            const std::vector<float> input = input_of(count, log.rank(), step);
            std::vector<float> one(count), other(count);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(first.get(), input.data(), one.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(second.get(), input.data(), other.data()));
            // Ranks that poll them in different orders, and in different ways.
            onebit_allreduce_t handles[2] = {first.get(), second.get()};
            if ((static_cast<std::uint64_t>(log.rank()) + step) % 2 == 1) std::swap(handles[0], handles[1]);
            for (int done[2] = {0, 0}; done[0] == 0 || done[1] == 0;)
                for (int h = 0; h < 2; ++h)
                    if (done[h] == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(handles[h], &done[h]));
            const std::vector<float> expected = average(count, log.size(), step);
            ONEBIT_EXPECT(log, same_bits(one, expected) && same_bits(other, expected));
        }
    });
}

TEST_CASE("a value that is not finite is refused, and calls go on", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice + 100;
        Allreduce reduce(comm, dense_config(count), log);
        const std::vector<float> good = input_of(count, log.rank(), 0);
        std::vector<float> bad = good, output(count, 5.0f);
        if (log.last_rank()) bad[count - 1] = std::numeric_limits<float>::quiet_NaN();
        for (int i = 0; i < 2; ++i) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank " + std::to_string(log.size() - 1),
                                  onebit_allreduce_run(reduce.get(), bad.data(), output.data()));
            ONEBIT_EXPECT(log, same_bits(output, std::vector<float>(count, 5.0f)));
            output = reduce.run(good);
            ONEBIT_EXPECT(log, same_bits(output, average(count, log.size(), 0)));
            output.assign(count, 5.0f);
        }
    });
}

TEST_CASE("large values are seen on the way, and refused like others; nothing in place is lost", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    enum class Places { apart, in_place, mixed };
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 3 * slice + 77;
        onebit_allreduce_config_t config = dense_config(count);
        config.threads = 2;
        Allreduce reduce(comm, config, log);
        std::uint64_t calls = 0, bytes[3] = {};
        for (const Places places : {Places::apart, Places::mixed, Places::in_place, Places::apart}) {
            const bool in_place = places == Places::in_place || (places == Places::mixed && log.rank() % 2 == 0);
            const bool kept = places == Places::mixed || log.size() == 1; // what another rank has in place
            // The first value is the first rank's part, the last the last one's: of the bad rank's own, and another's.
            const std::uint64_t at = places == Places::mixed ? count - 1 : 0;
            for (const int bad_rank : {0, log.size() - 1}) {
                std::vector<float> input = input_of(count, log.rank(), 0);
                if (log.rank() == bad_rank) input[at] = -std::numeric_limits<float>::infinity();
                std::vector<float> values = input, output(count, 5.0f);
                ONEBIT_EXPECT_FAILURE(
                    log, ONEBIT_ERROR_NONFINITE,
                    "rank " + std::to_string(bad_rank) + ": sendbuf[" + std::to_string(at) + "] is -inf",
                    onebit_allreduce_run(reduce.get(), values.data(), in_place ? values.data() : output.data()));
                ONEBIT_EXPECT(log, same_bits(values, input));
                if (kept) ONEBIT_EXPECT(log, same_bits(output, std::vector<float>(count, 5.0f)));
                values = input_of(count, log.rank(), calls);
                std::vector<float>& result = in_place ? values : output;
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), values.data(), result.data()));
                ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
                ONEBIT_EXPECT(log, same_bits(result, average(count, log.size(), calls)));
                ++calls;
            }
            bytes[static_cast<std::size_t>(places)] = reduce.info().last_bytes_sent;
        }
        ONEBIT_EXPECT(log, reduce.info().calls == calls);
        // Two agreements, on the arguments and on the values; in place one agreement on both.
        const std::uint64_t in_place = bytes[static_cast<std::size_t>(Places::in_place)];
        if (log.size() > 1)
            ONEBIT_EXPECT(log, bytes[0] > in_place && bytes[static_cast<std::size_t>(Places::mixed)] > in_place);
    });
}

TEST_CASE("averages are delivered where sums of finite values overflow", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 3 * slice;
        Allreduce reduce(comm, dense_config(count), log);
        const std::vector<float> largest(count, std::numeric_limits<float>::max());
        ONEBIT_EXPECT(log, same_bits(reduce.run(largest), largest));
    });
}

TEST_CASE("a rank that stays away is noticed by its silence", "[shared][timeout]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n != 3) return; // it takes a second
    const Variable timeout("ONEBIT_TIMEOUT", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = 9 * slice;
        onebit_allreduce_config_t config = dense_config(count);
        config.check = ONEBIT_CHECK_NONE;
        Allreduce reduce(comm, config, log);
        const std::vector<float> input = input_of(count, log.rank(), 0);
        ONEBIT_EXPECT(log, same_bits(reduce.run(input), average(count, log.size(), 0)));
        if (!log.last_rank()) {
            std::vector<float> output(count);
            for (int i = 0; i < 2; ++i) {
                ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_TIMEOUT,
                                     onebit_allreduce_run(reduce.get(), input.data(), output.data()));
                ONEBIT_EXPECT(log, std::string(onebit_last_error()).find("through shared memory") != std::string::npos);
            }
        }
        log.barrier();
    });
}

TEST_CASE("ranks on nodes of their own share nothing", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice;
        Allreduce reduce(comm, dense_config(count), log);
        ONEBIT_EXPECT(log, !shares_memory(reduce));
        ONEBIT_EXPECT(log, nearly_same(reduce.run(std::vector<float>(count, 0.5f)), std::vector<float>(count, 0.5f)));
    });
}

TEST_CASE("a handle that compresses takes no shared memory for its exact sums", "[shared]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice;
        Allreduce reduce(comm, flat_config(count), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_DENSE));
        ONEBIT_EXPECT(log, !shares_memory(reduce));
        ONEBIT_EXPECT(log, nearly_same(reduce.run(std::vector<float>(count, 0.5f)), std::vector<float>(count, 0.5f)));
    });
}

// Hidden: run by tests/transport/small_shared_memory_test.sh.
TEST_CASE("exact sums take no room of /dev/shm", "[.][small shared memory]") {
    const Variable node_size("ONEBIT_NODE_SIZE", "4");
    run_ranks(rank_counts().front(), [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t count = slice / 2; // 1 MiB of each rank for each handle
        Allreduce first(comm, dense_config(count), log), second(comm, dense_config(count), log);
        Allreduce third(comm, dense_config(count), log);
        for (Allreduce* reduce : {&first, &second, &third}) {
            ONEBIT_EXPECT(log, shares_memory(*reduce));
            const std::vector<float> output = reduce->run(std::vector<float>(count, 1.0f));
            ONEBIT_EXPECT(log, output.front() == 1.0f && output.back() == 1.0f);
        }
    });
}
