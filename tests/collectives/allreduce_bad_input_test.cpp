// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Bad arguments and values of a call, most of them on one rank alone: every rank gets the same status and a message
// that names the rank and what was wrong, nothing hangs, and neither the error state nor the output changes.
#include <limits>
#include <thread>

#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t count = 4999;

// A handle with a history, and a twin with the same history that never sees the bad calls.
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in)
        : log(log_in), reduce(comm, flat_config(count), log), twin(comm, flat_config(count), log) {
        reduce.run_steps(7, 0, 3);
        twin.run_steps(7, 0, 3);
        before = reduce.errors();
        input = make_data(Kind::gaussian, count, 8, log.rank(), 0);
        output.assign(count, 3.5f);
    }
    // The failed calls leave no trace: a good call still gives the twin's bits.
    void expect_untouched() {
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        ONEBIT_EXPECT(log, reduce.info().calls == twin.info().calls);
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(7, 3, 2), twin.run_steps(7, 3, 2)));
        ONEBIT_EXPECT(log, reduce.errors().same_as(twin.errors()));
    }
    // run, and start with wait, fail alike; the output stays unchanged.
    void expect_fails(onebit_status_t status, const std::string& needles, const void* send, void* receive) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_run(reduce.get(), send, receive));
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), send, receive));
        ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_wait(reduce.get()));
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        ONEBIT_EXPECT(log, same_bits(output, std::vector<float>(count, 3.5f)));
    }

    RankLog& log;
    Allreduce reduce, twin;
    Errors before;
    std::vector<float> input, output;
};

std::string rank_needle(int rank) {
    return "rank " + std::to_string(rank);
}

float* past(float* pointer, std::size_t bytes) {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(pointer) + bytes);
}

} // namespace

TEST_CASE("NULL and misaligned buffers on one rank", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        std::vector<float> longer(count + 1);
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            const bool mine = log.rank() == faulty;
            float* const in = subject.input.data();
            float* const out = subject.output.data();
            const std::string who = rank_needle(faulty);
            subject.expect_fails(bad, who + ";sendbuf;null", mine ? nullptr : in, out);
            subject.expect_fails(bad, who + ";recvbuf;null", in, mine ? nullptr : out);
            subject.expect_fails(bad, who + ";sendbuf|recvbuf", mine ? nullptr : in, mine ? nullptr : out);
            for (std::size_t bytes : {1u, 2u, 3u}) {
                subject.expect_fails(bad, who + ";sendbuf;align", mine ? past(longer.data(), bytes) : in, out);
                subject.expect_fails(bad, who + ";recvbuf;align", in, mine ? past(longer.data(), bytes) : out);
            }
        }
        subject.expect_untouched();
    });
}

TEST_CASE("partially overlapping buffers on one rank", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        std::vector<float> both(2 * count, 0.25f);
        const std::vector<float> untouched = both;
        float* const low = both.data();
        const std::string needles = rank_needle(log.size() - 1) + ";overlap";
        const bool mine = log.last_rank();
        float* const in = subject.input.data();
        float* const out = subject.output.data();
        for (std::size_t shift : {std::size_t{1}, count / 2, count - 1}) {
            subject.expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, needles, mine ? low : in, mine ? low + shift : out);
            subject.expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, needles, mine ? low + shift : in, mine ? low : out);
        }
        ONEBIT_EXPECT(log, same_bits(both, untouched));
        subject.expect_untouched();
        // Side by side is no overlap.
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(subject.reduce.get(), low, low + count));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(subject.reduce.get(), low + count, low));
    });
}

TEST_CASE("NaN and infinities on one rank", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        const float infinity = std::numeric_limits<float>::infinity();
        for (onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(subject.reduce.get(), algorithm));
            for (float value : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
                for (std::size_t place : {std::size_t{0}, std::size_t{2500}, std::size_t{4096}, count - 1}) {
                    log.context("value " + std::to_string(value) + " at " + std::to_string(place));
                    const int faulty = static_cast<int>(place) % log.size();
                    std::vector<float> spoiled = subject.input;
                    if (log.rank() == faulty) spoiled[place] = value;
                    const std::vector<float> kept = spoiled;
                    const std::string needles = rank_needle(faulty) + ";nan|inf";
                    subject.expect_fails(ONEBIT_ERROR_NONFINITE, needles, spoiled.data(), subject.output.data());
                    subject.expect_fails(ONEBIT_ERROR_NONFINITE, needles, spoiled.data(), spoiled.data());
                    ONEBIT_EXPECT(log, same_bits(spoiled, kept));
                }
            }
        }
        std::vector<float> all_bad(count, infinity);
        subject.expect_fails(ONEBIT_ERROR_NONFINITE, "rank", all_bad.data(), subject.output.data());
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(subject.reduce.get(), ONEBIT_ALGORITHM_FLAT));
        subject.expect_untouched();
    });
}

TEST_CASE("different faults on different ranks still give one status", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        if (log.rank() == 1) subject.input[17] = NAN;
        const void* send = log.rank() == 0 ? nullptr : subject.input.data();
        const onebit_status_t status = onebit_allreduce_run(subject.reduce.get(), send, subject.output.data());
        ONEBIT_EXPECT(log, status == ONEBIT_ERROR_INVALID_ARGUMENT || status == ONEBIT_ERROR_NONFINITE);
        ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank 0|rank 1"));
        ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
        subject.expect_untouched();
    });
}

TEST_CASE("ranks that set different algorithms", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        const onebit_allreduce_t handle = subject.reduce.get();
        for (int odd_one = 0; odd_one < log.size(); ++odd_one) {
            const bool mine = log.rank() == odd_one;
            ONEBIT_EXPECT_OK(
                log, onebit_allreduce_set_algorithm(handle, mine ? ONEBIT_ALGORITHM_DENSE : ONEBIT_ALGORITHM_FLAT));
            subject.expect_fails(ONEBIT_ERROR_MISMATCH, "rank;algorithm", subject.input.data(), subject.output.data());
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(handle, ONEBIT_ALGORITHM_FLAT));
        subject.expect_untouched();
    });
}

TEST_CASE("masks that differ", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        std::vector<std::uint32_t> mask((count + 31) / 32, 0xffffffffu);
        for (std::size_t word : {std::size_t{0}, mask.size() / 2}) {
            mask[word] = log.last_rank() ? 0x7fffffffu : 0xffffffffu;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;mask",
                                  onebit_allreduce_set_mask(subject.reduce.get(), mask.data()));
            ONEBIT_EXPECT(log, subject.reduce.errors().same_as(subject.before));
        }
        mask[0] = 0x12345678u;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "rank;mask",
                              onebit_allreduce_set_mask(subject.reduce.get(), log.rank() == 0 ? nullptr : mask.data()));
        subject.expect_untouched(); // the handle still has no mask
    });
}

TEST_CASE("a second thread on a busy handle gets BUSY at once and disturbs nothing", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs a peer that keeps the first thread waiting
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const bool usable = threads_allowed();
        Subject subject(comm, log);
        const std::vector<float> expected = subject.twin.run(subject.input);
        const onebit_allreduce_t handle = subject.reduce.get();
        if (log.rank() == 0 && usable) {
            onebit_status_t first = ONEBIT_ERROR_INTERNAL;
            std::thread thread([&] {
                do { // the other thread's query may briefly hold the handle
                    first = onebit_allreduce_run(handle, subject.input.data(), subject.output.data());
                } while (first == ONEBIT_ERROR_BUSY);
            });
            onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
            onebit_status_t seen = ONEBIT_SUCCESS; // until the first thread is inside, the handle is free
            const auto start = std::chrono::steady_clock::now();
            while (seen == ONEBIT_SUCCESS && std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
                seen = onebit_allreduce_get_info(handle, &info);
            ONEBIT_EXPECT(log, seen == ONEBIT_ERROR_BUSY);
            std::vector<float> other(count, 1.0f);
            int done = 0;
            if (seen == ONEBIT_ERROR_BUSY) {
                const onebit_status_t busy = ONEBIT_ERROR_BUSY;
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_run(handle, subject.input.data(), other.data()));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_start(handle, subject.input.data(), other.data()));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_test(handle, &done));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_wait(handle));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_reset(handle));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_set_algorithm(handle, ONEBIT_ALGORITHM_DENSE));
                ONEBIT_EXPECT_STATUS(log, busy,
                                     onebit_allreduce_get_error(handle, other.data(), nullptr, nullptr, nullptr));
                ONEBIT_EXPECT_STATUS(log, busy, onebit_allreduce_destroy(handle));
                ONEBIT_EXPECT(log, other[0] == 1.0f && other[count - 1] == 1.0f);
            }
            log.barrier();
            thread.join();
            ONEBIT_EXPECT(log, first == ONEBIT_SUCCESS);
        } else {
            log.barrier();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle, subject.input.data(), subject.output.data()));
        }
        ONEBIT_EXPECT(log, same_bits(subject.output, expected));
        ONEBIT_EXPECT(log, subject.reduce.errors().same_as(subject.twin.errors()));
    });
}

TEST_CASE("bad arguments of the local calls", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject subject(comm, log);
        const onebit_allreduce_t handle = subject.reduce.get();
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        ONEBIT_EXPECT_FAILURE(log, bad, "algorithm",
                              onebit_allreduce_set_algorithm(handle, static_cast<onebit_algorithm_t>(5)));
        ONEBIT_EXPECT_FAILURE(log, bad, "algorithm",
                              onebit_allreduce_set_algorithm(handle, static_cast<onebit_algorithm_t>(1 << 20)));
        ONEBIT_EXPECT_FAILURE(log, bad, "info", onebit_allreduce_get_info(handle, nullptr));
        onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
        info.size = 3;
        ONEBIT_EXPECT_FAILURE(log, bad, "size", onebit_allreduce_get_info(handle, &info));
        info.size = sizeof info;
        info.version = 77;
        ONEBIT_EXPECT_FAILURE(log, bad, "version", onebit_allreduce_get_info(handle, &info));
        ONEBIT_EXPECT_FAILURE(log, bad, "done", onebit_allreduce_test(handle, nullptr));
        ONEBIT_EXPECT_FAILURE(log, bad, "bytes", onebit_allreduce_state_size(handle, nullptr));
        std::uint64_t bytes = 0;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_state_size(handle, &bytes));
        Bytes state(bytes, 0x5a);
        ONEBIT_EXPECT_FAILURE(log, bad, "buffer", onebit_allreduce_pack_state(handle, nullptr, bytes));
        ONEBIT_EXPECT_FAILURE(log, bad, "bytes|small", onebit_allreduce_pack_state(handle, state.data(), bytes - 1));
        ONEBIT_EXPECT(log, state == Bytes(bytes, 0x5a));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_get_error(handle, nullptr, nullptr, nullptr, nullptr));
        subject.expect_untouched();
    });
}
