// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// start, test and wait; the calls that a started operation forbids; the statistics.
#include <thread>

#include "oracle/codes.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

enum class Finish { wait, test, test_then_wait };

onebit_status_t finish(onebit_allreduce_t handle, Finish how) {
    if (how == Finish::wait) return onebit_allreduce_wait(handle);
    int done = 0;
    for (int polls = 0; how == Finish::test || polls < 3; ++polls) {
        const onebit_status_t status = onebit_allreduce_test(handle, &done);
        if (done != 0 || status != ONEBIT_SUCCESS) return status;
        std::this_thread::yield();
    }
    return onebit_allreduce_wait(handle);
}

} // namespace

TEST_CASE("start with test or wait gives the bits of run", "[async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            for (std::uint64_t count : {std::uint64_t{33}, std::uint64_t{20011}}) {
                onebit_allreduce_config_t config = flat_config(count);
                config.algorithm = algorithm;
                Allreduce reference(comm, config, log), reduce(comm, config, log);
                std::uint64_t step = 0;
                for (Finish how : {Finish::wait, Finish::test, Finish::test_then_wait}) {
                    for (const bool in_place : {false, true}) {
                        log.context("finish " + std::to_string(static_cast<int>(how)) + (in_place ? " in place" : ""));
                        std::vector<float> data = make_data(Kind::gaussian, count, 71, log.rank(), step++);
                        const std::vector<float> expected = reference.run(data);
                        std::vector<float> separate(count, NAN);
                        std::vector<float>& output = in_place ? data : separate;
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), data.data(), output.data()));
                        ONEBIT_EXPECT_OK(log, finish(reduce.get(), how));
                        // The order in which a dense sum is added is MPI's, another one when it may not block.
                        ONEBIT_EXPECT(log, algorithm == ONEBIT_ALGORITHM_DENSE ? nearly_same(output, expected)
                                                                               : same_bits(output, expected));
                        ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
                    }
                }
                ONEBIT_EXPECT(log, reduce.errors().same_as(reference.errors()));
                ONEBIT_EXPECT(log, reduce.info().calls == step);
            }
        }
    });
}

TEST_CASE("start and test return while the peers are elsewhere", "[async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            onebit_allreduce_config_t config = flat_config(10000);
            config.algorithm = algorithm;
            Allreduce reduce(comm, config, log);
            const std::vector<float> input = make_data(Kind::gaussian, 10000, 73, log.rank(), 0);
            std::vector<float> output(10000, NAN);
            if (log.rank() == 0) {
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), input.data(), output.data()));
                for (int polls = 0; polls < 50; ++polls) {
                    int done = -1;
                    ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
                    ONEBIT_EXPECT(log, done == 0 || log.size() == 1); // the others have not even begun
                }
            }
            log.barrier();
            if (log.rank() != 0)
                ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), input.data(), output.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
            ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
            ONEBIT_EXPECT(log, !std::isnan(output[0]) && !std::isnan(output[9999]));
        }
    });
}

TEST_CASE("two handles in flight don't disturb each other", "[async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce a(comm, flat_config(9001), log), b(comm, flat_config(5003, all_modes()[1]), log);
        Allreduce a_alone(comm, flat_config(9001), log), b_alone(comm, flat_config(5003, all_modes()[1]), log);
        for (std::uint64_t step = 0; step < 6; ++step) {
            const std::vector<float> in_a = make_data(Kind::gaussian, 9001, 81, log.rank(), step);
            const std::vector<float> in_b = make_data(Kind::heavy_tailed, 5003, 82, log.rank(), step);
            std::vector<float> out_a(9001, NAN), out_b(5003, NAN);
            const bool a_first = (static_cast<std::uint64_t>(log.rank()) + step) % 2 == 0;
            if (a_first) ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), in_a.data(), out_a.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(b.get(), in_b.data(), out_b.data()));
            if (!a_first) ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), in_a.data(), out_a.data()));
            if (step % 2 == 0) { // polled in turn, in this rank's own order
                int done_a = 0, done_b = 0;
                while (done_a == 0 || done_b == 0) {
                    if (done_a == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(a.get(), &done_a));
                    if (done_b == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(b.get(), &done_b));
                    std::this_thread::yield();
                }
            } else { // waited for in one order on all ranks: progress is made for the handle waited for
                ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(b.get()));
                ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(a.get()));
            }
            ONEBIT_EXPECT(log, same_bits(out_a, a_alone.run(in_a)));
            ONEBIT_EXPECT(log, same_bits(out_b, b_alone.run(in_b)));
        }
        ONEBIT_EXPECT(log, a.errors().same_as(a_alone.errors()));
        ONEBIT_EXPECT(log, b.errors().same_as(b_alone.errors()));
    });
}

TEST_CASE("wait and test with nothing started succeed at once", "[async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(100), log);
        int done = -1;
        if (log.rank() == 0) { // local: the others do nothing
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_test(reduce.get(), &done));
            ONEBIT_EXPECT(log, done == 1);
        }
        reduce.run_steps(1, 0, 1);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
        ONEBIT_EXPECT(log, reduce.info().calls == 1);
    });
}

TEST_CASE("a started operation keeps its handle busy", "[async]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(5000), log), twin(comm, flat_config(5000), log);
        const std::vector<float> input = make_data(Kind::gaussian, 5000, 91, log.rank(), 0);
        std::vector<float> output(5000, NAN), other(5000, 7.0f);
        std::vector<std::uint32_t> mask(157, 0xffffffffu);
        std::uint64_t bytes = 0;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_state_size(reduce.get(), &bytes));
        Bytes state(bytes + 64);
        const onebit_allreduce_t handle = reduce.get();

        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(handle, input.data(), output.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "", onebit_allreduce_run(handle, input.data(), other.data()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BUSY, "", onebit_allreduce_start(handle, input.data(), other.data()));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_destroy(handle));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_reset(handle));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_set_algorithm(handle, ONEBIT_ALGORITHM_DENSE));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_set_mask(handle, mask.data()));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY,
                             onebit_allreduce_get_error(handle, nullptr, nullptr, &bytes, nullptr));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_pack_state(handle, state.data(), state.size()));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_unpack_state(handle, state.data(), state.size()));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_save(handle, "/nonexistent/onebit"));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_BUSY, onebit_allreduce_load(handle, "/nonexistent/onebit"));
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_get_info(handle, &info)); // BUSY only while another thread is in a call
        ONEBIT_EXPECT(log, info.calls == 0);

        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(handle));
        ONEBIT_EXPECT(log, same_bits(output, twin.run(input)));
        ONEBIT_EXPECT(log, same_bits(other, std::vector<float>(5000, 7.0f)));
        ONEBIT_EXPECT(log, reduce.errors().same_as(twin.errors()));
    });
}

TEST_CASE("bytes sent are the codes, the scales and little else", "[statistics]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t peers = static_cast<std::uint64_t>(log.size()) - 1;
        for (std::uint64_t count : {std::uint64_t{33}, std::uint64_t{4097}, std::uint64_t{100003}}) {
            for (const Mode& mode : every_mode()) {
                log.context(std::to_string(count) + " " + mode.name());
                Allreduce reduce(comm, flat_config(count, mode), log);
                const auto chunks = oracle::partition(count, log.size());
                std::uint64_t exact = 0; // every other chunk to its server, then the own one to everyone
                for (int r = 0; r < log.size(); ++r) {
                    const oracle::Range chunk = chunks[static_cast<std::size_t>(r)];
                    const std::uint64_t scales =
                        mode.group == ONEBIT_GROUP_BUFFER ? 1 : oracle::blocks_of(chunk).size();
                    const std::uint64_t bytes =
                        mode.codec != ONEBIT_CODEC_SIGN
                            ? oracle::message_words(static_cast<oracle::Code>(mode.codec), chunk.count) * 4
                            : (chunk.count + 31) / 32 * 4 + (chunk.count == 0 ? 0 : scales * 4);
                    exact += r == log.rank() ? bytes * peers : bytes;
                }
                const std::uint64_t created = reduce.info().bytes_sent;
                reduce.run_steps(101, 0, 1);
                const onebit_allreduce_info_t first = reduce.info();
                ONEBIT_EXPECT(log, first.last_bytes_sent >= exact);
                ONEBIT_EXPECT(log, first.last_bytes_sent <= exact + 64 * peers);
                ONEBIT_EXPECT(log, first.bytes_sent >= created + first.last_bytes_sent);
                reduce.run_steps(101, 1, 4);
                const onebit_allreduce_info_t fifth = reduce.info();
                ONEBIT_EXPECT(log, fifth.calls == 5);
                ONEBIT_EXPECT(log, fifth.last_bytes_sent == first.last_bytes_sent);
                ONEBIT_EXPECT(log, fifth.bytes_sent == first.bytes_sent + 4 * first.last_bytes_sent);
                const double dense = 2.0 * static_cast<double>(peers) / log.size() * 4 * static_cast<double>(count);
                ONEBIT_EXPECT(log, std::fabs(static_cast<double>(fifth.dense_bytes) - dense) <= 8);
            }
        }
    });
}

TEST_CASE("memory is what the header promises", "[statistics]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t kFew = 100, kMany = std::uint64_t{1} << 22;
        for (const auto& [count, check] :
             {std::pair(kFew, ONEBIT_CHECK_FULL), std::pair(kMany, ONEBIT_CHECK_NONE),
              std::pair(kMany, ONEBIT_CHECK_FULL_LOW_MEMORY), std::pair(kMany, ONEBIT_CHECK_FULL)}) {
            onebit_allreduce_config_t config = flat_config(count);
            config.check = check;
            Allreduce reduce(comm, config, log);
            const onebit_allreduce_info_t info = reduce.info();
            const std::uint64_t ranks = static_cast<std::uint64_t>(log.size());
            const std::uint64_t error = 4 * count + 4 * count / ranks;
            const std::uint64_t second_error = count == kMany && check == ONEBIT_CHECK_FULL ? error : 0;
            ONEBIT_EXPECT(log, info.state_bytes >= 4 * count); // it can't be kept in less
            ONEBIT_EXPECT(log, info.state_bytes < error + (1u << 20));
            ONEBIT_EXPECT(log, info.state_bytes + info.workspace_bytes < error + second_error + count / 2 + (1u << 20));
            ONEBIT_EXPECT(log, info.state_bytes + info.workspace_bytes > error + second_error);
            ONEBIT_EXPECT(log, info.threads >= 1);
            ONEBIT_EXPECT(log, info.calls == 0 && info.last_bytes_sent == 0);
            ONEBIT_EXPECT(log, info.kernels[0] != '\0' && info.reason[0] != '\0');
            ONEBIT_EXPECT(log, std::string(info.transport) == transport_name());
        }
    });
}
