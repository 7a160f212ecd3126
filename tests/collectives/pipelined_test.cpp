// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The pipelined form, straight and along a ring: with any piece size, the plain form's bits, in results and in errors,
// call after call.
#include <thread>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;

namespace {

// Chunks that end within a word, within a block, on a piece's end and just past one; chunks with a piece less than
// others have, and none at all.
std::vector<std::uint64_t> counts(int n) {
    const auto ranks = static_cast<std::uint64_t>(n);
    return {ranks, 33, 4096 * ranks, 4096 * ranks + 1, 8192 * ranks + 33, 12288 * ranks - 31, 40003};
}

std::vector<std::uint32_t> random_mask(std::uint64_t count) {
    Random random(5, 0, 0); // the same on every rank
    std::vector<std::uint32_t> mask;
    for (std::uint64_t word = 0; word < (count + 31) / 32; ++word) {
        mask.push_back(static_cast<std::uint32_t>(random.next()));
    }
    return mask;
}

void compare_with_plain(onebit_comm_t comm, RankLog& log, onebit_algorithm_t form, std::uint64_t count, Mode mode,
                        bool masked) {
    log.context("form " + std::to_string(form) + " " + std::to_string(count) + " " + mode.name() +
                (masked ? " masked" : ""));
    Allreduce plain(comm, flat_config(count, mode), log), pipelined(comm, form_config(form, count, mode), log);
    if (masked) {
        const std::vector<std::uint32_t> mask = random_mask(count);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(plain.get(), mask.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(pipelined.get(), mask.data()));
    }
    for (std::uint64_t step = 0; step < 4; ++step) {
        std::vector<float> data = make_data(Kind::heavy_tailed, count, 91, log.rank(), step);
        const std::vector<float> expected = plain.run(data);
        if (step % 2 == 0) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(pipelined.get(), data.data(), data.data()));
        } else {
            data = pipelined.run(data);
        }
        ONEBIT_EXPECT(log, same_bits(data, expected));
        ONEBIT_EXPECT(log, log.same_on_all(data.data(), data.size() * sizeof(float)));
        ONEBIT_EXPECT(log, pipelined.errors().same_as(plain.errors()));
    }
    // Along a ring a rank sends all chunks except the next rank's, instead of its own chunk so many times.
    const bool equal =
        form == ONEBIT_ALGORITHM_PIPELINED || count % (4096 * static_cast<std::uint64_t>(log.size())) == 0;
    ONEBIT_EXPECT(log, !equal || pipelined.info().bytes_sent == plain.info().bytes_sent);
}

} // namespace

TEST_CASE("pipelined gives the bits of plain, whatever the pieces", "[pipelined]") {
    const int n = GENERATE(from_range(rank_counts()));
    const char* piece = GENERATE("1", "8192", "1000000000000");
    if (is_sanitized() && *piece != '8') return;
    const Variable chosen("ONEBIT_PIECE", piece); // rounded up to whole blocks
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING);
    run_ranks(n, [form](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : counts(log.size())) {
            for (const Mode& mode : every_mode()) compare_with_plain(comm, log, form, count, mode, false);
        }
        for (const Mode& mode : every_mode()) compare_with_plain(comm, log, form, 30001, mode, true);
    });
}

TEST_CASE("one handle may change between plain, pipelined and ring from call to call", "[pipelined]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce changing(comm, form_config(ONEBIT_ALGORITHM_RING, 50001), log), plain(comm, flat_config(50001), log);
        const onebit_algorithm_t forms[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING};
        for (std::uint64_t step = 0; step < 6; ++step) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(changing.get(), forms[step % 3]));
            ONEBIT_EXPECT(log, same_bits(changing.run_steps(92, step, 1), plain.run_steps(92, step, 1)));
        }
        ONEBIT_EXPECT(log, changing.errors().same_as(plain.errors()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "flat;ring",
                              onebit_allreduce_set_algorithm(plain.get(), ONEBIT_ALGORITHM_RING));
    });
}

TEST_CASE("pieces of several handles in flight don't meet", "[pipelined]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t first = form_config(ONEBIT_ALGORITHM_PIPELINED, 60007),
                                        second = form_config(ONEBIT_ALGORITHM_RING, 45001, all_modes()[1]);
        Allreduce a(comm, first, log), b(comm, second, log), a_alone(comm, first, log), b_alone(comm, second, log);
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> in_a = make_data(Kind::gaussian, first.count, 93, log.rank(), step);
            const std::vector<float> in_b = make_data(Kind::gaussian, second.count, 94, log.rank(), step);
            std::vector<float> out_a(first.count, NAN), out_b(second.count, NAN);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(a.get(), in_a.data(), out_a.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(b.get(), in_b.data(), out_b.data()));
            for (int done_a = 0, done_b = 0; done_a == 0 || done_b == 0; std::this_thread::yield()) {
                if (done_a == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(a.get(), &done_a));
                if (done_b == 0) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(b.get(), &done_b));
            }
            ONEBIT_EXPECT(log, same_bits(out_a, a_alone.run(in_a)) && same_bits(out_b, b_alone.run(in_b)));
        }
    });
}

TEST_CASE("an error that overflows in a middle piece fails on every rank, and the next call is well", "[pipelined]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096");
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING);
    run_ranks(n, [form](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : all_modes()) {
            log.context(mode.name());
            constexpr std::uint64_t count = 70001;
            Allreduce pipelined(comm, form_config(form, count, mode), log), plain(comm, flat_config(count, mode), log);
            std::vector<float> huge(count, 0.0F), output(count);
            huge[count / 2] = 3e38F; // twice this is more than a float holds, and most of it is left over as error
            ONEBIT_EXPECT(log, same_bits(pipelined.run(huge), plain.run(huge)));
            for (const Allreduce* reduce : {&pipelined, &plain}) {
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow;reset",
                                      onebit_allreduce_run(reduce->get(), huge.data(), output.data()));
            }
            ONEBIT_EXPECT(log, pipelined.errors().same_as(plain.errors()));
            ONEBIT_EXPECT(log, same_bits(pipelined.run_steps(95, 0, 2), plain.run_steps(95, 0, 2)));
        }
    });
}

TEST_CASE("a rank that calls the plain form is told so", "[pipelined][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING);
    run_ranks(n, [form](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        Allreduce reduce(comm, form_config(form, 5000), log);
        const std::vector<float> input = make_data(Kind::gaussian, 5000, 96, log.rank(), 0);
        std::vector<float> output(5000);
        const onebit_algorithm_t mine = log.last_rank() ? ONEBIT_ALGORITHM_FLAT : form;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), mine));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "algorithm",
                              onebit_allreduce_run(reduce.get(), input.data(), output.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), form));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), input.data(), output.data()));
    });
}
