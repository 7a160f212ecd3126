// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// ONEBIT_OP_SUM: exact where sums are exact, n times the average to the bit where n is a power of two, and never an
// infinity. The oracle's sums are in allreduce_oracle_test.cpp.
#include <cfloat>

#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_algorithm_t kForms[] = {ONEBIT_ALGORITHM_DENSE,     ONEBIT_ALGORITHM_FLAT,  ONEBIT_ALGORITHM_PIPELINED,
                                         ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING};

onebit_allreduce_config_t sum_config(onebit_algorithm_t form, std::uint64_t count, Mode mode = default_mode()) {
    onebit_allreduce_config_t config = form_config(form, count, mode);
    config.op = ONEBIT_OP_SUM;
    return config;
}

/// Each way of an exact sum: few values, more, through shared memory, and values checked on the way.
std::vector<std::uint64_t> counts_of_ways(int n) {
    return {static_cast<std::uint64_t>(n), 31, 33, 2047, 4095, 70001, (std::uint64_t{1} << 18) + 5};
}

} // namespace

TEST_CASE("an exact sum of small whole numbers is exact, in place or not", "[allreduce][sum]") {
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_FULL_LOW_MEMORY, ONEBIT_CHECK_NONE);
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : counts_of_ways(log.size())) {
            log.context(std::to_string(count));
            onebit_allreduce_config_t config = sum_config(ONEBIT_ALGORITHM_DENSE, count);
            config.check = check;
            Allreduce reduce(comm, config, log);
            std::vector<float> values(count);
            std::vector<float> expected(count);
            for (std::uint64_t i = 0; i < count; ++i) {
                values[i] = static_cast<float>(i % 97) + static_cast<float>(log.rank());
                const int ranks = log.size() * (log.size() - 1) / 2;
                expected[i] = static_cast<float>(log.size()) * static_cast<float>(i % 97) + static_cast<float>(ranks);
            }
            ONEBIT_EXPECT(log, same_bits(reduce.run(values), expected));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), values.data()));
            ONEBIT_EXPECT(log, same_bits(values, expected));
        }
    });
}

TEST_CASE("a sum over a power of two ranks is that many averages, to the bit", "[allreduce][sum]") {
    const bool on_nodes = GENERATE(false, true);
    const Variable nodes("ONEBIT_NODE_SIZE", on_nodes ? "2" : "");
    const int n = GENERATE(from_range(rank_counts()));
    if ((n & (n - 1)) != 0) return;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const auto factor = static_cast<float>(log.size());
        const auto times = [&](std::vector<float> values) {
            for (float& value : values) value *= factor;
            return values;
        };
        for (const onebit_algorithm_t form : kForms) {
            for (const Mode& mode : all_modes()) {
                log.context(std::to_string(form) + " " + mode.name());
                Allreduce average(comm, form_config(form, 9001, mode), log);
                Allreduce sum(comm, sum_config(form, 9001, mode), log);
                for (std::uint64_t call = 0; call < 3; ++call) {
                    const std::vector<float> values = make_data(Kind::gaussian, 9001, 3, log.rank(), call);
                    const std::vector<float> output = sum.run(values);
                    ONEBIT_EXPECT(log, same_bits(output, times(average.run(values))));
                    ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
                }
                ONEBIT_EXPECT(log, same_bits(sum.errors().server, times(average.errors().server)));
                ONEBIT_EXPECT(log, sum.info().last_bytes_sent == average.info().last_bytes_sent);
            }
        }
    });
}

TEST_CASE("a sum that overflows is NONFINITE on every rank, and the next call is as good as new", "[allreduce][sum]") {
    const bool in_place = GENERATE(false, true);
    const bool on_nodes = GENERATE(false, true);
    const Variable nodes("ONEBIT_NODE_SIZE", on_nodes ? "2" : "");
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t form : kForms) {
            for (const std::uint64_t count : counts_of_ways(log.size())) {
                log.context(std::to_string(form) + " of " + std::to_string(count));
                Allreduce reduce(comm, sum_config(form, count), log);
                std::vector<float> huge(count, 0.75F * FLT_MAX);
                std::vector<float> result(count);
                ONEBIT_EXPECT_FAILURE(
                    log, ONEBIT_ERROR_NONFINITE, "overflow",
                    onebit_allreduce_run(reduce.get(), huge.data(), in_place ? huge.data() : result.data()));
                const std::vector<float> output = reduce.run(std::vector<float>(count, 1.0F));
                ONEBIT_EXPECT(log, output == std::vector<float>(count, static_cast<float>(log.size())));
            }
        }
    });
}

TEST_CASE("one element whose sum overflows is enough, wherever it is", "[allreduce][sum]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : counts_of_ways(log.size())) {
            Allreduce reduce(comm, sum_config(ONEBIT_ALGORITHM_DENSE, count), log);
            for (const std::uint64_t at : {std::uint64_t{0}, count / 2, count - 1}) {
                std::vector<float> values(count, 1.0F);
                values[at] = -0.75F * FLT_MAX;
                std::vector<float> result(count);
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "element " + std::to_string(at) + " ",
                                      onebit_allreduce_run(reduce.get(), values.data(), result.data()));
            }
        }
    });
}

TEST_CASE("a state of sums is none of averages", "[allreduce][sum][state]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce sum(comm, sum_config(ONEBIT_ALGORITHM_FLAT, 5001), log);
        Allreduce twin(comm, sum_config(ONEBIT_ALGORITHM_FLAT, 5001), log);
        Allreduce average(comm, flat_config(5001), log);
        sum.run_steps(5, 0, 3);
        const Bytes state = sum.packed();
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_BAD_STATE, "op",
                              onebit_allreduce_unpack_state(average.get(), state.data(), state.size()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(twin.get(), state.data(), state.size()));
        ONEBIT_EXPECT(log, same_bits(sum.run_steps(5, 3, 1), twin.run_steps(5, 3, 1)));
    });
}
