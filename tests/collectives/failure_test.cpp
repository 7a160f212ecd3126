// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Failures in the middle: values that overflow, ranks that take different ways, saves that half succeed.
#include <cmath>
#include <filesystem>

#include "support/directory.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr std::uint64_t count = 5003;

bool all_zero(const std::vector<float>& values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

} // namespace

TEST_CASE("finite values whose error overflows fail on every rank and reset the state", "[failure]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(count), log);
        std::vector<float> huge(count, 0.0f);
        huge[3] = 3e38f; // twice this is more than a float holds, and most of it is left over as error
        reduce.run(huge);
        std::vector<float> output(count);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow;reset",
                              onebit_allreduce_run(reduce.get(), huge.data(), output.data()));
        ONEBIT_EXPECT(log, all_zero(reduce.errors().worker) && all_zero(reduce.errors().server));
        const std::vector<float> after = reduce.run(make_data(Kind::gaussian, count, 5, log.rank(), 0));
        ONEBIT_EXPECT(log, std::isfinite(after[3]));
        ONEBIT_EXPECT(log, log.same_on_all(after.data(), after.size() * sizeof(float)));
    });
}

TEST_CASE("a dense sum may be begun by run on one rank and by start on another", "[failure]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::uint64_t many = GENERATE(std::uint64_t{100}, std::uint64_t{70001});
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = flat_config(many);
        config.algorithm = ONEBIT_ALGORITHM_DENSE;
        Allreduce reduce(comm, config, log);
        const std::vector<float> input = make_data(Kind::gaussian, many, 6, log.rank(), 0);
        std::vector<float> output(many);
        if (log.last_rank()) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), input.data(), output.data()));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
        } else {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), input.data(), output.data()));
        }
        ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
    });
}

TEST_CASE("a save that one rank can't finish is taken back by all", "[failure][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Allreduce reduce(comm, flat_config(count), log);
        reduce.run_steps(1, 0, 2);
        const Errors saved = reduce.errors();
        const std::string prefix = directory.prefix("state");
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), prefix.c_str()));
        reduce.run_steps(1, 2, 2);

        // A directory takes the place of the last rank's file: found only when all others have replaced their files.
        const fs::path mine = directory.file("state", log.rank());
        if (log.last_rank()) {
            fs::rename(mine, directory.prefix("aside"));
            fs::create_directory(mine);
        }
        log.barrier();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank " + std::to_string(log.size() - 1),
                              onebit_allreduce_save(reduce.get(), prefix.c_str()));
        if (log.last_rank()) {
            fs::remove(mine);
            fs::rename(directory.prefix("aside"), mine);
        }
        log.barrier();
        ONEBIT_EXPECT(log, directory.listing().size() == static_cast<std::size_t>(log.size())); // no litter
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(reduce.get(), prefix.c_str()));
        ONEBIT_EXPECT(log, reduce.errors().same_as(saved));
    });
}

TEST_CASE("files of two saves are not loaded together", "[failure][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        if (log.size() == 1) return;
        SharedDirectory directory(log);
        Allreduce reduce(comm, flat_config(count), log);
        reduce.run_steps(1, 0, 1);
        const std::string first = directory.prefix("first");
        const std::string second = directory.prefix("second");
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), first.c_str()));
        reduce.run_steps(1, 1, 1);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(reduce.get(), second.c_str()));
        const Errors before = reduce.errors();
        const std::string& mixed = log.last_rank() ? first : second;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE,
                              "another save;rank " + std::to_string(log.size() - 1) + ";first;.0-of-",
                              onebit_allreduce_load(reduce.get(), mixed.c_str()));
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
    });
}

TEST_CASE("a state saved under another mask is refused", "[failure][state][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        SharedDirectory directory(log);
        Allreduce masked(comm, flat_config(count), log);
        Allreduce plain(comm, flat_config(count), log);
        const std::vector<std::uint32_t> mask((count + 31) / 32, 0x0f0f0f0fu);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(masked.get(), mask.data()));
        masked.run_steps(1, 0, 2);
        const std::string prefix = directory.prefix("state");
        ONEBIT_EXPECT_OK(log, onebit_allreduce_save(masked.get(), prefix.c_str()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "mask", onebit_allreduce_load(plain.get(), prefix.c_str()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(plain.get(), mask.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_load(plain.get(), prefix.c_str()));
        const std::vector<float> next = make_data(Kind::gaussian, count, 9, log.rank(), 0);
        ONEBIT_EXPECT(log, same_bits(plain.run(next), masked.run(next)));
    });
}
