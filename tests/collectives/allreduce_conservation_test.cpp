// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The purpose of error feedback: nothing is lost. After any number of steps the input is in the results or in the
// errors. And the dense mode, which shares the handle.
#include <algorithm>
#include <cmath>

#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// Over the steps: sum of the results + mean worker error + server errors == sum of the averaged inputs.
void check_conservation(onebit_comm_t comm, RankLog& log, std::uint64_t count, Mode mode, Kind kind) {
    constexpr int steps = 200;
    log.context(mode.name() + " " + name_of(kind));
    Allreduce reduce(comm, flat_config(count, mode), log);
    std::vector<double> balance(count, 0.0);
    double largest = 0;
    for (std::uint64_t t = 0; t < steps; ++t) {
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> data = make_data(kind, count, 21, r, t);
            for (std::uint64_t i = 0; i < count; ++i) balance[i] += static_cast<double>(data[i]) / log.size();
        }
        const std::vector<float> output = reduce.run(make_data(kind, count, 21, log.rank(), t));
        for (std::uint64_t i = 0; i < count; ++i) {
            balance[i] -= output[i];
            largest = std::max(largest, std::fabs(static_cast<double>(output[i])));
        }
    }
    const Errors errors = reduce.errors();
    for (const auto& worker : log.gather_floats(errors.worker)) {
        for (std::uint64_t i = 0; i < count; ++i) {
            balance[i] -= static_cast<double>(worker[i]) / log.size();
            largest = std::max(largest, std::fabs(static_cast<double>(worker[i])));
        }
    }
    std::uint64_t at = 0;
    for (const auto& server : log.gather_floats(errors.server)) {
        for (float e : server) {
            balance[at++] -= e;
            largest = std::max(largest, std::fabs(static_cast<double>(e)));
        }
    }
    ONEBIT_EXPECT(log, at == count);
    expect_balanced(log, balance, steps, largest);
    ONEBIT_EXPECT(log, largest > 0.1);
}

// The exact average: float sums of n terms.
void check_dense(const std::vector<float>& output, std::uint64_t seed, std::uint64_t step, RankLog& log) {
    const std::size_t count = output.size();
    std::vector<double> mean(count, 0.0), magnitude(count, 0.0);
    for (int r = 0; r < log.size(); ++r) {
        const std::vector<float> data = make_data(Kind::gaussian, count, seed, r, step);
        for (std::size_t i = 0; i < count; ++i) {
            mean[i] += static_cast<double>(data[i]) / log.size();
            magnitude[i] += std::fabs(static_cast<double>(data[i])) / log.size();
        }
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
        if (!(std::fabs(output[i] - mean[i]) <= 6e-8 * (log.size() + 2) * magnitude[i])) ++wrong;
    log.expect(wrong == 0, std::to_string(wrong) + " elements are not the average", __FILE__, __LINE__);
    ONEBIT_EXPECT(log, log.same_on_all(output.data(), count * sizeof(float)));
}

} // namespace

TEST_CASE("error feedback loses nothing in 200 steps", "[allreduce][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) check_conservation(comm, log, 1009, mode, Kind::gaussian);
        // The L2 scale is no contraction on such data (ALGORITHMS.md, section 1); the L1 scale never diverges.
        check_conservation(comm, log, 1009, {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER}, Kind::heavy_tailed);
    });
}

TEST_CASE("dense allreduce is the average", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t ranks = static_cast<std::uint64_t>(log.size());
        for (std::uint64_t count : {ranks, std::uint64_t{33}, std::uint64_t{4097}, std::uint64_t{100003}}) {
            log.context("count " + std::to_string(count));
            onebit_allreduce_config_t config = flat_config(count);
            config.algorithm = ONEBIT_ALGORITHM_DENSE;
            Allreduce reduce(comm, config, log);
            check_dense(reduce.run(make_data(Kind::gaussian, count, 31, log.rank(), 0)), 31, 0, log);
            Buffer data(count, true);
            data.set(make_data(Kind::gaussian, count, 31, log.rank(), 1));
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), data.data(), data.data()));
            check_dense(data.get(), 31, 1, log);
            ONEBIT_EXPECT(log, data.guards_intact());
            for (float e : reduce.errors().worker)
                if (e != 0) ONEBIT_EXPECT(log, e == 0);
            ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_DENSE);
        }
    });
}

TEST_CASE("a dense call between compressed ones leaves the error alone", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 5000;
        Allreduce reduce(comm, flat_config(count), log), twin(comm, flat_config(count), log);
        reduce.run_steps(41, 0, 3);
        twin.run_steps(41, 0, 3);
        const Errors before = reduce.errors();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_DENSE));
        ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_DENSE);
        check_dense(reduce.run(make_data(Kind::gaussian, count, 42, log.rank(), 0)), 42, 0, log);
        ONEBIT_EXPECT(log, reduce.errors().same_as(before));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_algorithm(reduce.get(), ONEBIT_ALGORITHM_FLAT));
        ONEBIT_EXPECT(log, reduce.info().algorithm == ONEBIT_ALGORITHM_FLAT);
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(41, 3, 2), twin.run_steps(41, 3, 2)));
        ONEBIT_EXPECT(log, reduce.errors().same_as(twin.errors()));
    });
}

TEST_CASE("checked and unchecked calls give the same bits", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = flat_config(6001);
        Allreduce checked(comm, config, log);
        config.check = ONEBIT_CHECK_NONE;
        config.threads = 2; // nor does the number of threads matter
        Allreduce unchecked(comm, config, log);
        ONEBIT_EXPECT(log, same_bits(checked.run_steps(51, 0, 5), unchecked.run_steps(51, 0, 5)));
        ONEBIT_EXPECT(log, checked.errors().same_as(unchecked.errors()));
    });
}

TEST_CASE("AUTO chooses, says what and why, and is dense or compressed", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : {std::uint64_t{64}, std::uint64_t{200000}}) {
            const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
            onebit_allreduce_config_t dense_config = config;
            dense_config.algorithm = ONEBIT_ALGORITHM_DENSE;
            Allreduce reduce(comm, config, log), dense(comm, dense_config, log), flat(comm, flat_config(count), log);
            const onebit_allreduce_info_t info = reduce.info();
            ONEBIT_EXPECT(log, info.algorithm > ONEBIT_ALGORITHM_AUTO);
            ONEBIT_EXPECT(log, info.reason[0] != '\0');
            ONEBIT_EXPECT(log, log.same_on_all(&info.algorithm, sizeof info.algorithm));
            Allreduce& same = info.algorithm == ONEBIT_ALGORITHM_DENSE ? dense : flat;
            ONEBIT_EXPECT(log, same_bits(reduce.run_steps(61, 0, 2), same.run_steps(61, 0, 2)));
        }
    });
}

namespace {

// The possible rounding of an average of so few values.
bool is_close(const std::vector<float>& result, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!(std::fabs(result[i] - expected[i]) <= 1e-6 * (1 + std::fabs(expected[i])))) return false;
    }
    return true;
}

onebit_allreduce_config_t few_values_config(std::uint64_t count) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    config.algorithm = ONEBIT_ALGORITHM_DENSE;
    return config;
}

// Doubling alone, and from three ranks on halving. Each rank is a node of its own, because inside a node so many
// elements go through shared memory.
struct FewValues {
    const char* node_size;
    std::uint64_t count;
};
constexpr FewValues few_values[] = {{"", 17}, {"1", 1000}, {"1", 6145}, {"1", 65536}};

std::vector<float> few_values_of(std::uint64_t count, int rank, std::uint64_t step) {
    return make_data(Kind::gaussian, count, 71, rank, step);
}

// In place.
void average(onebit_allreduce_t allreduce, RankLog& log, std::vector<float>& values, bool by_start) {
    if (by_start) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(allreduce, values.data(), values.data()));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(allreduce));
    } else {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(allreduce, values.data(), values.data()));
    }
    ONEBIT_EXPECT(log, log.same_on_all(values.data(), values.size() * sizeof(float)));
}

void expect_average(onebit_allreduce_t allreduce, RankLog& log, std::uint64_t count, std::uint64_t step,
                    bool by_start) {
    std::vector<double> expected(count);
    for (int r = 0; r < log.size(); ++r) {
        const std::vector<float> values = few_values_of(count, r, step);
        for (std::size_t i = 0; i < count; ++i) expected[i] += values[i] / static_cast<double>(log.size());
    }
    std::vector<float> values = few_values_of(count, log.rank(), step);
    average(allreduce, log, values, by_start);
    ONEBIT_EXPECT(log, is_close(values, expected));
}

} // namespace

TEST_CASE("few values are averaged exactly, with the same bits on all ranks, by start or by run", "[allreduce][few]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const FewValues& few : few_values) {
        const Variable node_size("ONEBIT_NODE_SIZE", few.node_size);
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            Allreduce reduce(comm, few_values_config(few.count), log);
            for (std::uint64_t step = 0; step < 3; ++step) {
                expect_average(reduce.get(), log, few.count, step, step == 1 && log.last_rank());
            }
            ONEBIT_EXPECT(log, reduce.info().calls == 3);
            if (few.count > 1000) return;
            // By number of ranks, and rank: of three, rank 1 hands its values to rank 0, which takes part and returns
            // the result.
            constexpr std::uint64_t messages[][4] = {{}, {0}, {1, 1}, {2, 1, 1}, {2, 2, 2, 2}};
            ONEBIT_EXPECT(
                log, reduce.info().last_bytes_sent == messages[log.size()][log.rank()] * few.count * sizeof(float));
        });
    }
}

TEST_CASE("few values that nobody looked at before: what is wrong shows in their sum", "[allreduce][few]") {
    const int n = GENERATE(from_range(rank_counts()));
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float infinity = std::numeric_limits<float>::infinity();
    for (const FewValues& few : few_values) {
        const Variable node_size("ONEBIT_NODE_SIZE", few.node_size);
        run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
            const std::uint64_t count = few.count;
            Allreduce reduce(comm, few_values_config(count), log);
            const std::vector<float> good = few_values_of(count, log.rank(), 9);
            const std::vector<float> untouched(count, 5.0f);
            for (int culprit = 0; culprit < log.size(); ++culprit) {
                const bool here = log.rank() == culprit;
                const std::string name = "rank " + std::to_string(culprit);
                for (const float value : {nan, infinity}) {
                    std::vector<float> bad = good;
                    if (here) bad[count - 1] = value;
                    const std::vector<float> before = bad;
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, name + ";sendbuf[" + std::to_string(count - 1),
                                          onebit_allreduce_run(reduce.get(), bad.data(), bad.data()));
                    ONEBIT_EXPECT(log, same_bits(bad, before));
                }
                std::vector<float> result = untouched;
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, name + ";sendbuf is NULL",
                                      onebit_allreduce_run(reduce.get(), here ? nullptr : good.data(), result.data()));
                ONEBIT_EXPECT_OK(log,
                                 onebit_allreduce_start(reduce.get(), good.data(), here ? nullptr : result.data()));
                ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, name + ";recvbuf is NULL",
                                      onebit_allreduce_wait(reduce.get()));
                ONEBIT_EXPECT(log, same_bits(result, untouched));
                expect_average(reduce.get(), log, count, static_cast<std::uint64_t>(culprit), here);
            }
            // Infinities that would cancel each other out; the first rank's is told.
            std::vector<float> bad = good;
            bad[0] = log.rank() % 2 == 0 ? infinity : -infinity;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "rank 0;sendbuf[0] is inf",
                                  onebit_allreduce_run(reduce.get(), bad.data(), bad.data()));

            // Finite values whose sum is not, but the average.
            const std::vector<float> large(count, std::numeric_limits<float>::max());
            std::vector<float> averaged = large;
            average(reduce.get(), log, averaged, log.last_rank());
            ONEBIT_EXPECT(log, averaged == large);
            expect_average(reduce.get(), log, count, 7, false);
            ONEBIT_EXPECT(log, reduce.info().calls == static_cast<std::uint64_t>(log.size()) + 2);
        });
    }
}
