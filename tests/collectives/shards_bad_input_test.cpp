// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Bad arguments and values of a reduce-scatter's or an all-gather's call, most of them on one rank alone: every rank
// gets the same status and a message that names the rank and what was wrong, nothing hangs, and neither the error nor
// the result's memory changes.
#include <chrono>
#include <limits>
#include <thread>

#include "support/environment.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

// No shard is empty, none of whole words.
Cut uneven_cut(int ranks) {
    constexpr std::uint64_t lengths[] = {1501, 33, 4097, 611};
    Cut cut{"uneven", {}};
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) cut.counts.push_back(lengths[r % 4]);
    return cut;
}

std::string rank_needle(int rank) {
    return "rank " + std::to_string(rank);
}

float* past(float* pointer, std::size_t bytes) {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(pointer) + bytes);
}

onebit_shard_config_t with_check(const Cut& cut, onebit_check_t check) {
    onebit_shard_config_t config = shard_config(cut);
    config.check = check;
    return config;
}

// A handle with a history, and a twin with the same history that never sees the bad calls.
template <class Collective>
struct Subject {
    Subject(onebit_comm_t comm, RankLog& log_in, const Cut& cut, onebit_check_t check = ONEBIT_CHECK_FULL)
        : log(log_in), shards(comm, with_check(cut, check), log), twin(comm, with_check(cut, check), log) {
        shards.run_steps(7, 0, 3);
        twin.run_steps(7, 0, 3);
        before = shards.error();
        input = shards.input(Kind::gaussian, 8, 0);
        output.assign(shards.output_count(), 3.5F);
    }
    // The failed calls leave no trace: good calls still give the twin's bits.
    void expect_untouched(std::uint64_t next_step = 3) {
        expect_bits(log, "the error", shards.error(), before);
        ONEBIT_EXPECT(log, shards.info().calls == twin.info().calls);
        expect_bits(log, "what comes next", shards.run_steps(7, next_step, 2), twin.run_steps(7, next_step, 2));
        expect_bits(log, "the next error", shards.error(), twin.error());
        before = shards.error();
    }
    // run, and start with wait, fail alike.
    void expect_fails(onebit_status_t status, const std::string& needles, const void* send, void* receive) {
        ONEBIT_EXPECT_FAILURE(log, status, needles, Collective::run(shards.get(), send, receive));
        expect_bits(log, "the error", shards.error(), before);
        ONEBIT_EXPECT_OK(log, Collective::start(shards.get(), send, receive));
        ONEBIT_EXPECT_FAILURE(log, status, needles, Collective::wait(shards.get()));
        expect_bits(log, "the error", shards.error(), before);
        expect_bits(log, "the output", output, std::vector<float>(shards.output_count(), 3.5F));
    }
    // In every way of making a call.
    void expect_values_fail(onebit_status_t status, const std::string& needles, const std::vector<float>& values) {
        for (const Way& way : all_ways()) {
            const Outcome outcome = shards.call(values, way);
            ONEBIT_EXPECT_FAILURE(log, status, needles, outcome.status);
            ONEBIT_EXPECT(log, outcome.untouched);
        }
        expect_bits(log, "the error", shards.error(), before);
    }

    RankLog& log;
    Shards<Collective> shards, twin;
    std::vector<float> before, input, output;
};

} // namespace

TEMPLATE_TEST_CASE("shards: NULL and misaligned buffers on one rank", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log, uneven_cut(log.size()));
        std::vector<float> longer(std::max(subject.input.size(), subject.output.size()) + 1);
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        float* const in = subject.input.data();
        float* const out = subject.output.data();
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            const bool mine = log.rank() == faulty;
            const std::string who = rank_needle(faulty);
            subject.expect_fails(bad, who + ";sendbuf;null", mine ? nullptr : in, out);
            subject.expect_fails(bad, who + ";recvbuf;null", in, mine ? nullptr : out);
            subject.expect_fails(bad, who + ";sendbuf|recvbuf", mine ? nullptr : in, mine ? nullptr : out);
            for (const std::size_t bytes : {1U, 2U, 3U}) {
                subject.expect_fails(bad, who + ";sendbuf;align", mine ? past(longer.data(), bytes) : in, out);
                subject.expect_fails(bad, who + ";recvbuf;align", in, mine ? past(longer.data(), bytes) : out);
            }
        }
        subject.expect_untouched();
    });
}

TEMPLATE_TEST_CASE("shards: buffers that overlap elsewhere than in the shard's place", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = uneven_cut(log.size());
        Subject<TestType> subject(comm, log, cut);
        const auto count = static_cast<std::ptrdiff_t>(cut.total());
        const oracle::Range shard = subject.shards.shard();
        const auto begin = static_cast<std::ptrdiff_t>(shard.begin), own = static_cast<std::ptrdiff_t>(shard.count);
        std::vector<float> memory(3 * cut.total(), 0.25F);
        const std::vector<float> untouched = memory;
        float* const whole = memory.data() + count;
        // Beside the place, and over either end of the whole.
        for (const std::ptrdiff_t at : {begin + 1, begin - 1, 1 - own, count - 1}) {
            for (int faulty = 0; faulty < log.size(); ++faulty) {
                const bool mine = log.rank() == faulty;
                log.context("at " + std::to_string(at) + " on rank " + std::to_string(faulty));
                const float* const send = TestType::gathers ? whole + at : whole;
                float* const receive = TestType::gathers ? whole : whole + at;
                subject.expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, rank_needle(faulty) + ";overlap",
                                     mine ? send : subject.input.data(), mine ? receive : subject.output.data());
            }
        }
        ONEBIT_EXPECT(log, same_bits(memory, untouched));
        subject.expect_untouched();
        // Side by side is no overlap.
        for (const std::ptrdiff_t at : {-own, count}) {
            const float* const send = TestType::gathers ? whole + at : whole;
            float* const receive = TestType::gathers ? whole : whole + at;
            ONEBIT_EXPECT_OK(log, TestType::run(subject.shards.get(), send, receive));
        }
    });
}

TEMPLATE_TEST_CASE("shards: one that is empty needs no memory and lies nowhere", "[shards][bad input]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {cut_with_zeros(log.size()), single_cut(log.size(), 999, log.size() - 1)}) {
            log.context(cut.name);
            Subject<TestType> subject(comm, log, cut);
            const bool empty = subject.shards.shard().count == 0;
            float* const in = subject.input.data();
            float* const out = subject.output.data();
            // The whole is needed even there.
            const bool faulty = log.rank() == 0;
            ONEBIT_EXPECT(log, !faulty || empty);
            const std::string who = rank_needle(0) + (TestType::gathers ? ";recvbuf" : ";sendbuf") + ";null";
            subject.expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, who, !TestType::gathers && faulty ? nullptr : in,
                                 TestType::gathers && faulty ? nullptr : out);
            subject.expect_untouched();
            std::vector<float> whole(cut.total(), 1.0F);
            for (float* const anywhere : {static_cast<float*>(nullptr), whole.data(), whole.data() + 1}) {
                if (TestType::gathers) {
                    ONEBIT_EXPECT_OK(log, TestType::run(subject.shards.get(), empty ? anywhere : in, whole.data()));
                } else {
                    ONEBIT_EXPECT_OK(log, TestType::run(subject.shards.get(), whole.data(), empty ? anywhere : out));
                }
            }
        }
    });
}

TEMPLATE_TEST_CASE("shards: NaN and infinities on one rank, and it has never been", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_FULL_LOW_MEMORY);
    const bool on_the_way = GENERATE(false, true); // values are looked at as they are encoded
    if (on_the_way && check != ONEBIT_CHECK_FULL) return;
    const Variable second_error("ONEBIT_SECOND_ERROR", on_the_way ? "1" : "");
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = uneven_cut(log.size());
        Subject<TestType> subject(comm, log, cut, check);
        const float infinity = std::numeric_limits<float>::infinity();
        const float values[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
        std::uint64_t step = 3;
        for (const onebit_algorithm_t algorithm : {ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE}) {
            subject.shards.set_algorithm(algorithm);
            for (int faulty = 0; faulty < log.size(); ++faulty) {
                const std::uint64_t length = TestType::gathers ? cut.shard(faulty).count : cut.total();
                for (const std::uint64_t place : {std::uint64_t{0}, length / 2, length - 1}) {
                    const float value = values[(place + static_cast<std::uint64_t>(faulty)) % 3];
                    log.context(std::to_string(value) + " at " + std::to_string(place) + " of rank " +
                                std::to_string(faulty) + ", algorithm " + std::to_string(algorithm));
                    std::vector<float> spoiled = subject.input;
                    if (log.rank() == faulty) spoiled[place] = value;
                    subject.expect_values_fail(ONEBIT_ERROR_NONFINITE,
                                               rank_needle(faulty) + ";sendbuf[" + std::to_string(place) + "];nan|inf",
                                               spoiled);
                }
                if (algorithm == ONEBIT_ALGORITHM_PIPELINED) {
                    subject.expect_untouched(step); // and between failures, too
                    step += 2;
                }
            }
        }
        log.context("everywhere");
        subject.expect_values_fail(ONEBIT_ERROR_NONFINITE, "rank", std::vector<float>(subject.input.size(), NAN));
        subject.shards.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
        subject.expect_untouched(step);
    });
}

TEMPLATE_TEST_CASE("shards: finite values that overflow with the error begin it again", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_FULL_LOW_MEMORY);
    const bool on_the_way = GENERATE(false, true);
    const Variable second_error("ONEBIT_SECOND_ERROR", on_the_way ? "1" : "");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = uneven_cut(log.size());
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            log.context("on rank " + std::to_string(faulty));
            Shards<TestType> shards(comm, with_check(cut, check), log);
            const bool mine = log.rank() == faulty;
            std::vector<float> input = shards.input(Kind::gaussian, 9, 0);
            if (mine) input[input.size() / 2] = 3e38F; // most of it is left over as error
            shards.run(input);
            const std::vector<float> before = shards.error();
            const Outcome outcome = shards.call(input);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow", outcome.status);
            const std::vector<float> none(input.size(), 0.0F);
            // An all-gather's errors begin again as an allreduce's do.
            const bool all = TestType::gathers || check == ONEBIT_CHECK_FULL_LOW_MEMORY;
            expect_bits(log, "the error", shards.error(), all || mine ? none : before);
            ONEBIT_EXPECT(log, TestType::gathers || outcome.untouched);
            // Where there is a NaN beside such an overflow the values are not finite, and the error is kept.
            shards.run(input);
            const std::vector<float> kept = shards.error();
            std::vector<float> spoiled = input;
            if (mine) spoiled[0] = NAN;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, rank_needle(faulty) + ";sendbuf[0]",
                                  shards.call(spoiled).status);
            expect_bits(log, "the error", shards.error(), kept);
        }
    });
}

TEMPLATE_TEST_CASE("shards: different faults on different ranks still give one status", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log, uneven_cut(log.size()));
        if (log.rank() == 1) subject.input[17] = NAN;
        const void* send = log.rank() == 0 ? nullptr : subject.input.data();
        const onebit_status_t status = TestType::run(subject.shards.get(), send, subject.output.data());
        ONEBIT_EXPECT(log, status == ONEBIT_ERROR_INVALID_ARGUMENT || status == ONEBIT_ERROR_NONFINITE);
        ONEBIT_EXPECT(log, holds(onebit_last_error(), "rank 0|rank 1"));
        ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
        subject.expect_untouched();
    });
}

TEMPLATE_TEST_CASE("shards: ranks that set different algorithms", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log, uneven_cut(log.size()));
        for (int odd_one = 0; odd_one < log.size(); ++odd_one) {
            subject.shards.set_algorithm(log.rank() == odd_one ? ONEBIT_ALGORITHM_DENSE : ONEBIT_ALGORITHM_PIPELINED);
            subject.expect_fails(ONEBIT_ERROR_MISMATCH, "rank;algorithm", subject.input.data(), subject.output.data());
            subject.shards.set_algorithm(log.rank() == odd_one ? ONEBIT_ALGORITHM_PIPELINED : ONEBIT_ALGORITHM_DENSE);
            subject.expect_fails(ONEBIT_ERROR_MISMATCH, "rank;algorithm", subject.input.data(), subject.output.data());
        }
        subject.shards.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
        subject.expect_untouched();
    });
}

TEMPLATE_TEST_CASE("shards: a second thread on a busy handle gets BUSY at once and disturbs nothing",
                   "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return; // it needs a peer that keeps the first thread waiting
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Subject<TestType> subject(comm, log, uneven_cut(log.size()));
        const std::vector<float> expected = subject.twin.run(subject.input);
        const auto handle = subject.shards.get();
        if (log.rank() == 0 && threads_allowed()) {
            onebit_status_t first = ONEBIT_ERROR_INTERNAL;
            std::thread thread([&] {
                do { // the other thread's query may briefly hold the handle
                    first = TestType::run(handle, subject.input.data(), subject.output.data());
                } while (first == ONEBIT_ERROR_BUSY);
            });
            onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
            onebit_status_t seen = ONEBIT_SUCCESS; // until the first thread is inside, the handle is free
            const auto start = std::chrono::steady_clock::now();
            while (seen == ONEBIT_SUCCESS && std::chrono::steady_clock::now() - start < std::chrono::seconds(20))
                seen = TestType::get_info(handle, &info);
            ONEBIT_EXPECT(log, seen == ONEBIT_ERROR_BUSY);
            std::vector<float> other(std::max(subject.input.size(), subject.output.size()), 1.0F);
            const std::vector<float> kept = other;
            int done = 0;
            if (seen == ONEBIT_ERROR_BUSY) {
                const onebit_status_t busy = ONEBIT_ERROR_BUSY;
                ONEBIT_EXPECT_STATUS(log, busy, TestType::run(handle, subject.input.data(), other.data()));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::start(handle, subject.input.data(), other.data()));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::test(handle, &done));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::wait(handle));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::reset(handle));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::set_algorithm(handle, ONEBIT_ALGORITHM_DENSE));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::set_callback(handle, nullptr, nullptr));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::get_error(handle, other.data()));
                ONEBIT_EXPECT_STATUS(log, busy, TestType::destroy(handle));
                ONEBIT_EXPECT(log, same_bits(other, kept));
            }
            log.barrier();
            thread.join();
            ONEBIT_EXPECT(log, first == ONEBIT_SUCCESS);
        } else {
            log.barrier();
            ONEBIT_EXPECT_OK(log, TestType::run(handle, subject.input.data(), subject.output.data()));
        }
        expect_bits(log, "the output", subject.output, expected);
        expect_bits(log, "the error", subject.shards.error(), subject.twin.error());
    });
}

TEMPLATE_TEST_CASE("shards: bad arguments of the local calls", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = uneven_cut(log.size());
        Subject<TestType> subject(comm, log, cut);
        const auto handle = subject.shards.get();
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        const onebit_algorithm_t wrong[] = {ONEBIT_ALGORITHM_AUTO,
                                            ONEBIT_ALGORITHM_FLAT,
                                            ONEBIT_ALGORITHM_TWO_LEVEL,
                                            ONEBIT_ALGORITHM_BRUCK,
                                            ONEBIT_ALGORITHM_RING,
                                            static_cast<onebit_algorithm_t>(7),
                                            static_cast<onebit_algorithm_t>(-1)};
        for (const onebit_algorithm_t algorithm : wrong) {
            log.context("algorithm " + std::to_string(algorithm));
            ONEBIT_EXPECT_FAILURE(log, bad, "algorithm", TestType::set_algorithm(handle, algorithm));
            ONEBIT_EXPECT(log, subject.shards.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
        }
        log.context("");
        ONEBIT_EXPECT_FAILURE(log, bad, "info", TestType::get_info(handle, nullptr));
        onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
        info.size = 3;
        ONEBIT_EXPECT_FAILURE(log, bad, "size", TestType::get_info(handle, &info));
        info.size = sizeof info;
        info.version = 77;
        ONEBIT_EXPECT_FAILURE(log, bad, "version", TestType::get_info(handle, &info));
        ONEBIT_EXPECT_FAILURE(log, bad, "done", TestType::test(handle, nullptr));
        ONEBIT_EXPECT_FAILURE(log, bad, "bytes", TestType::state_size(handle, nullptr));
        std::uint64_t bytes = 0;
        ONEBIT_EXPECT_OK(log, TestType::state_size(handle, &bytes));
        Bytes state(bytes, 0x5a);
        ONEBIT_EXPECT_FAILURE(log, bad, "buffer", TestType::pack_state(handle, nullptr, bytes));
        ONEBIT_EXPECT_FAILURE(log, bad, "bytes|small", TestType::pack_state(handle, state.data(), bytes - 1));
        ONEBIT_EXPECT(log, state == Bytes(bytes, 0x5a));
        subject.expect_untouched();

        // A handle that is exact for good stays exact.
        Shards<TestType> dense(comm, shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE), log);
        ONEBIT_EXPECT_FAILURE(log, bad, "algorithm|compressed|created",
                              TestType::set_algorithm(dense.get(), ONEBIT_ALGORITHM_PIPELINED));
        dense.set_algorithm(ONEBIT_ALGORITHM_DENSE);
        dense.run_steps(1, 0, 1);
    });
}
