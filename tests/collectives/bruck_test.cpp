// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Bruck's form: with any number of ranks and any radix, the plain form's bits, in results and in errors.
#include <string>

#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;

namespace {

onebit_allreduce_config_t bruck_config(std::uint64_t count, Mode mode = default_mode()) {
    return form_config(ONEBIT_ALGORITHM_BRUCK, count, mode);
}

// Chunks of a few elements, of different lengths, and some that are empty.
std::vector<std::uint64_t> counts(int n) {
    const auto ranks = static_cast<std::uint64_t>(n);
    return {ranks, 33, 32 * ranks, 32 * ranks - 1, 4096 * ranks + 33, 40003};
}

void compare_with_plain(onebit_comm_t comm, RankLog& log, std::uint64_t count, Mode mode) {
    log.context(std::to_string(count) + " " + mode.name());
    Allreduce plain(comm, flat_config(count, mode), log), bruck(comm, bruck_config(count, mode), log);
    for (std::uint64_t step = 0; step < 4; ++step) {
        const std::vector<float> data = make_data(Kind::heavy_tailed, count, 92, log.rank(), step);
        const std::vector<float> result = bruck.run(data);
        ONEBIT_EXPECT(log, same_bits(result, plain.run(data)));
        ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size() * sizeof(float)));
        ONEBIT_EXPECT(log, bruck.errors().same_as(plain.errors()));
    }
}

// The loopback has room for any number of ranks, and MPI those that it was started with.
std::vector<int> many_rank_counts() {
    const std::vector<int> ranks = rank_counts();
    if (ranks.size() == 1) return ranks;
    if (is_sanitized()) return {3, 9}; // what is read and written where, not which bits: more ranks take minutes
    return {1, 2, 3, 5, 8, 9, 13, 16};
}

} // namespace

TEST_CASE("Bruck's form gives the bits of plain, whatever the radix", "[bruck]") {
    const int n = GENERATE(from_range(many_rank_counts()));
    const char* radix = GENERATE("2", "3", "4", "100");
    const Variable chosen("ONEBIT_RADIX", radix);
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : counts(log.size())) compare_with_plain(comm, log, count, default_mode());
        for (const Mode& mode : every_mode()) compare_with_plain(comm, log, 3001, mode);
    });
}

TEST_CASE("one handle may change between Bruck's form and others from call to call", "[bruck]") {
    const int n = GENERATE(from_range(many_rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce changing(comm, bruck_config(5001), log), plain(comm, flat_config(5001), log);
        const onebit_algorithm_t forms[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_PIPELINED};
        for (std::uint64_t step = 0; step < 6; ++step) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(changing.get(), forms[step % 3]));
            const std::vector<float> data = make_data(Kind::gaussian, 5001, 93, log.rank(), step);
            ONEBIT_EXPECT(log, same_bits(changing.run(data), plain.run(data)));
        }
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "flat;bruck",
                              onebit_allreduce_set_algorithm(plain.get(), ONEBIT_ALGORITHM_BRUCK));
    });
}

TEST_CASE("Bruck's form by start and test, with and without checks, with a mask", "[bruck][async]") {
    const int n = GENERATE(from_range(many_rank_counts()));
    const bool checked = GENERATE(true, false);
    run_ranks(n, [checked](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t kCount = 2001;
        onebit_allreduce_config_t config = bruck_config(kCount);
        config.check = checked ? ONEBIT_CHECK_FULL : ONEBIT_CHECK_NONE;
        Allreduce bruck(comm, config, log), plain(comm, flat_config(kCount), log);
        const std::vector<std::uint32_t> mask((kCount + 31) / 32, 0xF0F0F0F1U);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(plain.get(), mask.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(bruck.get(), mask.data()));
        for (std::uint64_t step = 0; step < 3; ++step) {
            const std::vector<float> data = make_data(Kind::gaussian, kCount, 96, log.rank(), step);
            std::vector<float> result(kCount);
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(bruck.get(), data.data(), result.data()));
            for (int done = 0; done == 0;) ONEBIT_EXPECT_OK(log, onebit_allreduce_test(bruck.get(), &done));
            ONEBIT_EXPECT(log, same_bits(result, plain.run(data)));
            ONEBIT_EXPECT(log, bruck.errors().same_as(plain.errors()));
        }
    });
}

TEST_CASE("Bruck's form sends what its paper says", "[bruck]") {
    if (!can_have_ranks(8)) return;
    const Variable radix("ONEBIT_RADIX", "2");
    run_ranks(8, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t kCount = 8 * 4096;
        onebit_allreduce_config_t config = bruck_config(kCount);
        config.check = ONEBIT_CHECK_NONE;
        Allreduce bruck(comm, config, log);
        (void)bruck.run(make_data(Kind::gaussian, kCount, 94, log.rank(), 0));
        // Half of the 8 blocks at each of 3 hops, then all but one; a block's signs and its scale.
        ONEBIT_EXPECT(log, bruck.info().last_bytes_sent == (3 * 4 + 7) * (4096 / 8 + 4));
    });
}

TEST_CASE("many ranks choose between forms, and average few values exactly", "[bruck]") {
    if (!can_have_ranks(16)) return;
    run_ranks(16, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : {16U, 50U, 100000U}) {
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
            Allreduce chosen(comm, config, log);
            std::vector<float> result = chosen.run(std::vector<float>(count, static_cast<float>(log.rank())));
            if (count < 100) ONEBIT_EXPECT(log, result == std::vector<float>(count, 7.5F));
            ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size() * sizeof(float)));
            ONEBIT_EXPECT(log, std::string(chosen.info().reason).find("bruck") != std::string::npos);
        }
    });
}

TEST_CASE("what Bruck's form holds is as much as the header says", "[bruck]") {
    if (!can_have_ranks(8)) return;
    const Variable radix("ONEBIT_RADIX", "2");
    run_ranks(8, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t kCount = 1 << 20;
        Allreduce bruck(comm, bruck_config(kCount), log);
        ONEBIT_EXPECT(log, bruck.info().workspace_bytes > kCount / 2 / 2);
        ONEBIT_EXPECT(log, bruck.info().workspace_bytes <= kCount / 2 + 3 * kCount / 4 + (1 << 20));
    });
}

TEST_CASE("a NaN on one of many ranks is said by all of them, and changes nothing", "[bruck][failure]") {
    if (!can_have_ranks(11)) return;
    run_ranks(11, [](onebit_comm_t comm, RankLog& log) {
        Allreduce bruck(comm, bruck_config(700), log), plain(comm, flat_config(700), log);
        std::vector<float> data = make_data(Kind::gaussian, 700, 95, log.rank(), 0);
        ONEBIT_EXPECT(log, same_bits(bruck.run(data), plain.run(data)));
        std::vector<float> bad = data;
        if (log.rank() == 7) bad[5] = NAN;
        std::vector<float> result(700);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank 7;sendbuf[5]",
                              onebit_allreduce_run(bruck.get(), bad.data(), result.data()));
        ONEBIT_EXPECT(log, same_bits(bruck.run(data), plain.run(data)));
        ONEBIT_EXPECT(log, bruck.errors().same_as(plain.errors()));
    });
}
