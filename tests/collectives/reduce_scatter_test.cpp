// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Promises of a reduce-scatter beyond the oracle's bits (shards_oracle_test.cpp): nothing is lost, exact averages and
// sums are exact, and a handle may change from one kind of call to the other.
#include <cfloat>

#include "support/environment.hpp"
#include "support/exact_averages.hpp"
#include "support/magnitudes.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

using Scatter = Shards<ReduceScatter>;

onebit_shard_config_t dense_shards(const Cut& cut, onebit_op_t op = ONEBIT_OP_AVERAGE) {
    onebit_shard_config_t config = shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE);
    config.op = op;
    return config;
}

// Over the steps: sum of this rank's results + mean error of its shard == sum of the averaged inputs.
void check_conservation(onebit_comm_t comm, RankLog& log, const Cut& cut, Mode mode, Kind kind) {
    constexpr int steps = 200;
    log.context(mode.name() + ", " + cut.name + ", " + name_of(kind));
    Scatter scatter(comm, shard_config(cut, mode), log);
    const oracle::Range shard = scatter.shard();
    std::vector<double> balance(shard.count, 0.0);
    double largest = 0;
    for (std::uint64_t t = 0; t < steps; ++t) {
        std::vector<float> own;
        for (int r = 0; r < log.size(); ++r) {
            const std::vector<float> data = make_data(kind, cut.total(), 21, r, t);
            for (std::uint64_t i = 0; i < shard.count; ++i)
                balance[i] += static_cast<double>(data[shard.begin + i]) / log.size();
            if (r == log.rank()) own = data;
        }
        const std::vector<float> output = scatter.run(own);
        for (std::uint64_t i = 0; i < shard.count; ++i) {
            balance[i] -= output[i];
            largest = std::max(largest, std::fabs(static_cast<double>(output[i])));
        }
    }
    for (const std::vector<float>& error : log.gather_floats(scatter.error())) {
        for (std::uint64_t i = 0; i < shard.count; ++i) {
            const auto value = static_cast<double>(error[shard.begin + i]);
            balance[i] -= value / log.size();
            largest = std::max(largest, std::fabs(value));
        }
    }
    expect_balanced(log, balance, steps, largest);
    ONEBIT_EXPECT(log, largest > 0.1 || shard.count == 0);
}

// Each value may be averaged over the ranks, but most can't be added up.
float huge_value(std::uint64_t i, int rank, std::uint64_t step) {
    const float sign = (i + step) % 5 == 0 ? -1.0F : 1.0F;
    return sign * (i % 7 == 3 ? static_cast<float>(rank + 1) : 3e38F);
}

} // namespace

TEST_CASE("a reduce-scatter loses nothing in 200 steps", "[shards][reduce_scatter][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) check_conservation(comm, log, chunk_cut(n, 1009), mode, Kind::gaussian);
        check_conservation(comm, log, cut_with_zeros(n), default_mode(), Kind::gaussian);
        // The L2 scale is no contraction on such data (ALGORITHMS.md, section 1); the L1 scale never diverges.
        check_conservation(comm, log, equal_cut(n, 333), {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER}, Kind::heavy_tailed);
    });
}

TEST_CASE("a reduce-scatter of zeros is zero and leaves no error", "[shards][reduce_scatter]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(n, 333);
        for (const Mode& mode : every_mode()) {
            log.context(mode.name());
            Scatter scatter(comm, shard_config(cut, mode), log);
            const std::vector<float> output = scatter.run(std::vector<float>(cut.total(), log.rank() == 0 ? -0.0F : 0));
            const std::vector<float> error = scatter.error();
            const auto is_zero = [](float value) { return value == 0; };
            ONEBIT_EXPECT(log, std::all_of(output.begin(), output.end(), is_zero));
            ONEBIT_EXPECT(log, std::all_of(error.begin(), error.end(), is_zero));
        }
    });
}

TEST_CASE("compressed sums of a power of two ranks are that many averages, to the bit", "[shards][reduce_scatter]") {
    const int n = GENERATE(from_range(rank_counts()));
    if ((n & (n - 1)) != 0) return;
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(n);
        for (const Mode& mode : every_mode()) {
            log.context(mode.name());
            onebit_shard_config_t config = shard_config(cut, mode);
            Scatter average(comm, config, log);
            config.op = ONEBIT_OP_SUM;
            Scatter sum(comm, config, log);
            for (std::uint64_t step = 0; step < 3; ++step) {
                std::vector<float> expected = average.run_steps(5, step, 1);
                for (float& value : expected) value *= static_cast<float>(n);
                expect_bits(log, "the sum", sum.run_steps(5, step, 1), expected);
            }
            expect_bits(log, "the error", sum.error(), average.error());
            // The ranks agree once more, on whether sums have overflowed.
            const std::uint64_t more = sum.info().last_bytes_sent - average.info().last_bytes_sent;
            ONEBIT_EXPECT(log, n == 1 ? more == 0 : more > 0 && more <= 16U * 3);
        }
    });
}

// -------------------------------------------------------------------------------------------------------- exact ----

TEST_CASE("an exact reduce-scatter adds up in the order of the ranks", "[shards][reduce_scatter][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE, ONEBIT_CHECK_FULL_LOW_MEMORY);
    std::vector<Cut> cuts = odd_cuts(n);
    cuts.push_back(chunk_cut(n, 100003));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::vector<Way> ways = all_ways();
        for (const Cut& cut : cuts) {
            for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                log.context(cut.name + (op == ONEBIT_OP_SUM ? ", sum" : ""));
                onebit_shard_config_t config = dense_shards(cut, op);
                config.check = check;
                Scatter scatter(comm, config, log);
                for (std::uint64_t step = 0; step < 3; ++step) {
                    oracle::FloatsPerRank parts;
                    for (int r = 0; r < n; ++r)
                        parts.push_back(part_of(input_of(cut.total(), r, step), cut.shard(log.rank())));
                    const oracle::Op oracle_op = op == ONEBIT_OP_SUM ? oracle::Op::sum : oracle::Op::average;
                    const Way way = ways[(step + static_cast<std::uint64_t>(log.rank()) + cut.total()) % ways.size()];
                    expect_bits(log, "the result", scatter.run(input_of(cut.total(), log.rank(), step), way),
                                oracle::exact(parts, oracle_op));
                }
                expect_bits(log, "no error", scatter.error(), std::vector<float>(cut.total(), 0.0F));
                ONEBIT_EXPECT(log, scatter.info().algorithm == ONEBIT_ALGORITHM_DENSE);
            }
        }
    });
}

TEST_CASE("an exact average is delivered where the sum overflows float32", "[shards][reduce_scatter][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    const std::uint64_t count = GENERATE(as<std::uint64_t>(), 5, 1000, 20011);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = chunk_cut(n, count);
        const oracle::Range shard = cut.shard(log.rank());
        onebit_shard_config_t config = dense_shards(cut);
        config.check = check;
        Scatter scatter(comm, config, log);
        for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
            log.context("step " + std::to_string(step));
            const std::vector<float> result = scatter.run(make_magnitudes(count, 1, log.rank(), step));
            ONEBIT_EXPECT(log, all_finite(result));
            std::vector<float> whole;
            for (const std::vector<float>& part : log.gather_floats(result))
                whole.insert(whole.end(), part.begin(), part.end());
            ONEBIT_EXPECT(log, is_average_of_magnitudes(whole, 1, n, step));

            std::vector<float> huge;
            for (std::uint64_t i = 0; i < count; ++i) huge.push_back(huge_value(i, log.rank(), step));
            const std::vector<float> averages = scatter.run(huge);
            std::size_t wrong = 0;
            for (std::uint64_t k = 0; k < shard.count; ++k) {
                double mean = 0;
                for (int r = 0; r < n; ++r) mean += static_cast<double>(huge_value(shard.begin + k, r, step)) / n;
                if (!(std::fabs(static_cast<double>(averages[k]) - mean) <= 1e-6 * std::fabs(mean))) ++wrong;
            }
            ONEBIT_EXPECT(log, wrong == 0);
        }
    });
}

TEST_CASE("an exact sum that overflows is NONFINITE on every rank", "[shards][reduce_scatter][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n == 1) return;
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_FULL_LOW_MEMORY);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : odd_cuts(n)) {
            log.context(cut.name);
            onebit_shard_config_t config = dense_shards(cut, ONEBIT_OP_SUM);
            config.check = check;
            Scatter dense(comm, config, log);
            config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
            Scatter either(comm, config, log);
            either.run_steps(3, 0, 2);
            either.set_algorithm(ONEBIT_ALGORITHM_DENSE);
            const std::vector<float> error = either.error();
            const std::vector<float> ones(cut.total(), 1.0F);
            const std::vector<float> sums(cut.shard(log.rank()).count, static_cast<float>(n));
            for (Scatter* const scatter : {&dense, &either}) {
                for (const std::uint64_t at : {std::uint64_t{0}, cut.total() / 2, cut.total() - 1}) {
                    std::vector<float> values(cut.total(), 1.0F);
                    values[at] = -0.75F * FLT_MAX;
                    const Way way = {at % 2 == 0, false, at % 3 == 0};
                    ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_NONFINITE, "overflow", scatter->call(values, way).status);
                    expect_bits(log, "what comes next", scatter->run(ones), sums);
                }
            }
            expect_bits(log, "the error", either.error(), error);
        }
    });
}

TEST_CASE("exact calls between compressed ones leave the error alone", "[shards][reduce_scatter][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(n);
        for (const Mode& mode : every_mode()) {
            const bool draws = mode.codec == ONEBIT_CODEC_RANDOMK; // by the number of calls, exact ones included
            log.context(mode.name());
            Scatter scatter(comm, shard_config(cut, mode), log), twin(comm, shard_config(cut, mode), log),
                dense(comm, dense_shards(cut), log);
            for (std::uint64_t round = 0; round < 3; ++round) {
                const std::vector<float> result = scatter.run_steps(41, 2 * round, 2);
                const std::vector<float> expected = twin.run_steps(41, 2 * round, 2);
                if (!draws) expect_bits(log, "compressed", result, expected);
                const std::vector<float> error = scatter.error();
                scatter.set_algorithm(ONEBIT_ALGORITHM_DENSE);
                expect_bits(log, "exact", scatter.run_steps(42, round, 1), dense.run_steps(42, round, 1));
                expect_bits(log, "the error", scatter.error(), error);
                scatter.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
            }
            if (!draws) expect_bits(log, "the error", scatter.error(), twin.error());
            ONEBIT_EXPECT(log, scatter.info().calls == 9);
        }
    });
}

// ---------------------------------------------------------------------------------------------------- magnitudes ----

namespace {

// The values still to be delivered of this rank's shard: the mean, or sum, of the ranks' values and errors.
std::vector<double> owed(RankLog& log, const Scatter& scatter, const std::vector<float>& values, double share,
                         double* largest) {
    const oracle::Range shard = scatter.shard();
    std::vector<double> sum(shard.count, 0.0);
    for (const std::vector<float>& whole : log.gather_floats(values)) {
        for (std::uint64_t i = 0; i < shard.count; ++i) {
            const auto value = static_cast<double>(whole[shard.begin + i]);
            sum[i] += share * value;
            *largest = std::max(*largest, std::fabs(value));
        }
    }
    return sum;
}

void expect_conserving_call(RankLog& log, Scatter& scatter, const std::vector<float>& values, double share) {
    double largest = 0;
    std::vector<double> balance = owed(log, scatter, values, share, &largest);
    const auto add = [&](const std::vector<double>& more, double sign) {
        for (std::size_t i = 0; i < balance.size(); ++i) balance[i] += sign * more[i];
    };
    add(owed(log, scatter, scatter.error(), share, &largest), 1);
    const Outcome outcome = scatter.call(values);
    ONEBIT_EXPECT(log, log.same_on_all(&outcome.status, sizeof outcome.status));
    ONEBIT_EXPECT(log, outcome.status == ONEBIT_SUCCESS || outcome.status == ONEBIT_ERROR_NONFINITE);
    const std::vector<float> error = scatter.error();
    ONEBIT_EXPECT(log, all_finite(error));
    if (outcome.status != ONEBIT_SUCCESS) return;
    ONEBIT_EXPECT(log, all_finite(outcome.output));
    add(owed(log, scatter, error, share, &largest), -1);
    add({outcome.output.begin(), outcome.output.end()}, -1);
    double lost = 0;
    for (const double b : balance) lost = std::max(lost, std::fabs(b));
    char text[64];
    std::snprintf(text, sizeof text, "lost %g of %g", lost, largest);
    log.expect(lost <= largest * 0x1p-20 + 0x1p-120, text, __FILE__, __LINE__);
}

} // namespace

TEST_CASE("a reduce-scatter of all magnitudes delivers finite values and loses nothing",
          "[shards][reduce_scatter][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto seed = GENERATE(as<std::uint64_t>(), 1, 2, 3);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = chunk_cut(n, 2001);
        for (const Mode& mode : every_mode()) {
            for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                onebit_shard_config_t config = shard_config(cut, mode);
                config.op = op;
                Scatter scatter(comm, config, log);
                for (std::uint64_t step = 0; step < 3 * magnitude_turns; ++step) {
                    log.context(mode.name() + (op == ONEBIT_OP_SUM ? " sum" : "") + ", step " + std::to_string(step));
                    // One kind of values for a while, so that errors become of its magnitude; then all in turn.
                    const std::uint64_t like = step < magnitude_turns ? 0 : step;
                    std::vector<float> values = make_magnitudes(cut.total(), seed, log.rank(), like);
                    if (step < magnitude_turns)
                        for (float& value : values) value /= 2;
                    expect_conserving_call(log, scatter, values, op == ONEBIT_OP_SUM ? 1 : 1.0 / n);
                }
            }
        }
    });
}

TEST_CASE("without checks those are told of an overflow whom it concerns", "[shards][reduce_scatter][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(n, 500);
        for (int owner = 0; owner < n; ++owner) {
            log.context("in the shard of rank " + std::to_string(owner));
            onebit_shard_config_t config = shard_config(cut);
            config.check = ONEBIT_CHECK_NONE;
            Scatter scatter(comm, config, log);
            std::vector<float> values = scatter.input(Kind::gaussian, 17, 0);
            if (log.rank() == 0) values[cut.shard(owner).begin + 7] = 3e38F; // most of it is left over as error
            scatter.run(values);
            const onebit_status_t status = scatter.call(values).status;
            ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_NONFINITE || (log.rank() != 0 && log.rank() != owner));
            ONEBIT_EXPECT(log, all_finite(scatter.error()));
            // Ranks whose error didn't overflow keep their error.
            const std::vector<float> none(cut.total(), 0.0F);
            ONEBIT_EXPECT(log, same_bits(scatter.error(), none) == (log.rank() == 0));
            // All have made as many calls: their states are of one moment.
            const Bytes state = scatter.packed();
            ONEBIT_EXPECT_OK(log, onebit_reduce_scatter_unpack_state(scatter.get(), state.data(), state.size()));
            // The handle is as good as before.
            ONEBIT_EXPECT(log, all_finite(scatter.run(std::vector<float>(cut.total(), 1.0F))));
        }
    });
}

// --------------------------------------------------------------------------------------------------------- AUTO ----

TEMPLATE_TEST_CASE("AUTO is exact where an allreduce of as many elements would be", "[shards][auto]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t each : {16U, 50000U}) {
            for (const onebit_codec_t codec : {ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT8}) {
                log.context("codec " + std::to_string(codec) + ", " + std::to_string(each));
                const Cut cut = equal_cut(n, each);
                onebit_shard_config_t config = ONEBIT_SHARD_CONFIG_INIT(cut.total());
                config.codec = codec;
                onebit_allreduce_config_t whole = ONEBIT_ALLREDUCE_CONFIG_INIT(cut.total());
                whole.codec = codec;
                const onebit_algorithm_t chosen = Allreduce(comm, whole, log).info().algorithm;
                Shards<TestType> shards(comm, config, log);
                const onebit_shard_info_t info = shards.info();
                ONEBIT_EXPECT(log, info.algorithm == (chosen == ONEBIT_ALGORITHM_DENSE ? ONEBIT_ALGORITHM_DENSE
                                                                                       : ONEBIT_ALGORITHM_PIPELINED));
                ONEBIT_EXPECT(log, info.reason[0] != '\0');
                config.algorithm = info.algorithm;
                Shards<TestType> same(comm, config, log);
                expect_bits(log, "the result", shards.run_steps(61, 0, 2), same.run_steps(61, 0, 2));
            }
        }
    });
}
