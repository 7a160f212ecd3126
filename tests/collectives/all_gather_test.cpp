// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Promises of an all-gather beyond the oracle's bits (shards_oracle_test.cpp): all ranks see the same, nothing is lost,
// exact ones copy bits. A reduce-scatter and an all-gather make an allreduce.
#include <limits>

#include "support/environment.hpp"
#include "support/magnitudes.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

using Gather = Shards<AllGather>;
using Scatter = Shards<ReduceScatter>;

bool same_everywhere(RankLog& log, const std::vector<float>& values) {
    return log.same_on_all(values.data(), values.size() * sizeof(float));
}

// Over the steps: sum of this rank's shard as all ranks saw it + its error == sum of the shard's values.
void check_conservation(onebit_comm_t comm, RankLog& log, const Cut& cut, Mode mode, Kind kind) {
    constexpr int steps = 200;
    log.context(mode.name() + ", " + cut.name + ", " + name_of(kind));
    Gather gather(comm, shard_config(cut, mode), log);
    const oracle::Range shard = gather.shard();
    std::vector<double> balance(shard.count, 0.0);
    double largest = 0;
    const auto take = [&](const std::vector<float>& values, double sign) {
        for (std::uint64_t i = 0; i < shard.count; ++i) {
            balance[i] += sign * static_cast<double>(values[i]);
            largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
        }
    };
    for (std::uint64_t t = 0; t < steps; ++t) {
        const std::vector<float> input = gather.input(kind, 22, t);
        const std::vector<float> output = gather.run(input);
        if (t % 50 == 0) ONEBIT_EXPECT(log, same_everywhere(log, output));
        take(input, 1);
        take(part_of(output, shard), -1);
    }
    take(gather.error(), -1);
    expect_balanced(log, balance, steps, largest);
    ONEBIT_EXPECT(log, largest > 0.1 || shard.count == 0);
}

} // namespace

TEST_CASE("an all-gather loses nothing in 200 steps", "[shards][all_gather][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) check_conservation(comm, log, chunk_cut(n, 1009), mode, Kind::gaussian);
        check_conservation(comm, log, cut_with_zeros(n), default_mode(), Kind::gaussian);
        check_conservation(comm, log, equal_cut(n, 333), {ONEBIT_SCALE_L1, ONEBIT_GROUP_BUFFER}, Kind::heavy_tailed);
    });
}

TEST_CASE("all ranks of an all-gather see the same bits, their own shard's among them", "[shards][all_gather]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : odd_cuts(n)) {
            for (const Mode& mode : every_mode()) {
                log.context(cut.name + ", " + mode.name());
                Gather gather(comm, shard_config(cut, mode), log);
                std::uint64_t step = 0;
                for (const Way& way : all_ways()) {
                    const std::vector<float> input = gather.input(Kind::heavy_tailed, 9, step++);
                    const std::vector<float> error = gather.error();
                    const std::vector<float> output = gather.run(input, way);
                    ONEBIT_EXPECT(log, same_everywhere(log, output));
                    // The owner's values are rounded, too: the intended values minus the new error.
                    const std::vector<float> own = part_of(output, gather.shard()), left = gather.error();
                    std::size_t wrong = 0;
                    for (std::size_t i = 0; i < own.size(); ++i) {
                        const float c = oracle::plus(input[i], error[i]);
                        if (bits_of(oracle::minus(c, own[i])) != bits_of(left[i])) ++wrong;
                    }
                    ONEBIT_EXPECT(log, wrong == 0);
                }
            }
        }
    });
}

TEST_CASE("an exact all-gather copies bits", "[shards][all_gather][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE, ONEBIT_CHECK_FULL_LOW_MEMORY);
    std::vector<Cut> cuts = odd_cuts(n);
    cuts.push_back(chunk_cut(n, 100003));
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::vector<Way> ways = all_ways();
        for (const Cut& cut : cuts) {
            log.context(cut.name);
            onebit_shard_config_t config = shard_config(cut, default_mode(), ONEBIT_ALGORITHM_DENSE);
            config.check = check;
            Gather gather(comm, config, log);
            for (std::uint64_t step = 0; step < magnitude_turns; ++step) { // denormals and both zeros among them
                std::vector<float> expected;
                std::vector<float> own;
                for (int r = 0; r < n; ++r) {
                    std::vector<float> values = make_magnitudes(cut.shard(r).count, 1, r, step);
                    if (!values.empty()) values.front() = -0.0F;
                    // Values aren't checked then.
                    if (check == ONEBIT_CHECK_NONE && !values.empty())
                        values.back() = step % 2 == 0 ? std::numeric_limits<float>::infinity() : std::nanf("0x123");
                    expected.insert(expected.end(), values.begin(), values.end());
                    if (r == log.rank()) own = std::move(values);
                }
                const Way way = ways[(step + static_cast<std::uint64_t>(log.rank())) % ways.size()];
                expect_bits(log, "the result", gather.run(own, way), expected);
            }
            expect_bits(log, "no error", gather.error(), std::vector<float>(gather.shard().count, 0.0F));
            ONEBIT_EXPECT(log, gather.info().algorithm == ONEBIT_ALGORITHM_DENSE);
        }
    });
}

TEST_CASE("exact calls between compressed ones leave an all-gather's error alone", "[shards][all_gather][dense]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(n);
        for (const Mode& mode : every_mode()) {
            const bool draws = mode.codec == ONEBIT_CODEC_RANDOMK; // by the number of calls, exact ones included
            log.context(mode.name());
            Gather gather(comm, shard_config(cut, mode), log), twin(comm, shard_config(cut, mode), log);
            for (std::uint64_t round = 0; round < 3; ++round) {
                const std::vector<float> result = gather.run_steps(41, 2 * round, 2);
                const std::vector<float> expected = twin.run_steps(41, 2 * round, 2);
                if (!draws) expect_bits(log, "compressed", result, expected);
                const std::vector<float> error = gather.error();
                gather.set_algorithm(ONEBIT_ALGORITHM_DENSE);
                const std::vector<float> input = gather.input(Kind::gaussian, 42, round);
                const std::vector<float> output = gather.run(input);
                expect_bits(log, "exact", part_of(output, gather.shard()), input);
                ONEBIT_EXPECT(log, same_everywhere(log, output));
                expect_bits(log, "the error", gather.error(), error);
                gather.set_algorithm(ONEBIT_ALGORITHM_PIPELINED);
            }
            if (!draws) expect_bits(log, "the error", gather.error(), twin.error());
            ONEBIT_EXPECT(log, gather.info().calls == 9);
        }
    });
}

TEST_CASE("an all-gather of all magnitudes delivers finite values, the same on all ranks",
          "[shards][all_gather][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto seed = GENERATE(as<std::uint64_t>(), 1, 2, 3);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const Cut cut = chunk_cut(n, 2001);
        for (const Mode& mode : every_mode()) {
            Gather gather(comm, shard_config(cut, mode), log);
            for (std::uint64_t step = 0; step < 3 * magnitude_turns; ++step) {
                log.context(mode.name() + ", step " + std::to_string(step));
                const std::vector<float> input =
                    make_magnitudes(gather.shard().count, seed, log.rank(), step < magnitude_turns ? 0 : step);
                const Outcome outcome = gather.call(input);
                ONEBIT_EXPECT(log, log.same_on_all(&outcome.status, sizeof outcome.status));
                ONEBIT_EXPECT(log, outcome.status == ONEBIT_SUCCESS || outcome.status == ONEBIT_ERROR_NONFINITE);
                ONEBIT_EXPECT(log, all_finite(gather.error()));
                if (outcome.status != ONEBIT_SUCCESS) continue;
                ONEBIT_EXPECT(log, all_finite(outcome.output) && same_everywhere(log, outcome.output));
            }
        }
    });
}

// ---------------------------------------------------------------------------------------------------- allreduces ----

namespace {

// Both halves beside an allreduce of the same values.
void expect_allreduce(onebit_comm_t comm, RankLog& log, const Cut& cut, Mode mode, onebit_op_t op, bool null_counts) {
    log.context(cut.name + ", " + mode.name() + (op == ONEBIT_OP_SUM ? ", sum" : ""));
    onebit_shard_config_t config = shard_config(cut, mode);
    if (null_counts) config.counts = nullptr;
    Gather gather(comm, config, log);
    config.op = op;
    Scatter scatter(comm, config, log);
    onebit_allreduce_config_t whole = form_config(ONEBIT_ALGORITHM_PIPELINED, cut.total(), mode);
    whole.op = op;
    Allreduce reduce(comm, whole, log);
    for (std::uint64_t step = 0; step < 12; ++step) {
        const Kind kind = step % 2 == 0 ? Kind::gaussian : Kind::heavy_tailed;
        const std::vector<float> input = make_data(kind, cut.total(), 33, log.rank(), step);
        const Way way = {step % 3 == 1, false, step % 4 >= 2};
        expect_bits(log, "the result", gather.run(scatter.run(input, way), way), reduce.run(input));
    }
    const Errors errors = reduce.errors();
    expect_bits(log, "the worker error", scatter.error(), errors.worker);
    expect_bits(log, "the server error", gather.error(), errors.server);
}

} // namespace

TEST_CASE("a reduce-scatter and an all-gather of its averages are an allreduce, to the bit",
          "[shards][reduce_scatter][all_gather][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable piece("ONEBIT_PIECE", "4096"); // so that there are several
    run_ranks(n, [n](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            for (const onebit_op_t op : {ONEBIT_OP_AVERAGE, ONEBIT_OP_SUM}) {
                for (const std::uint64_t words : {1U, 5U, 129U}) // shards of whole words
                    expect_allreduce(comm, log, equal_cut(n, 32 * words), mode, op, true);
                for (const std::uint64_t count :
                     {static_cast<std::uint64_t>(n), std::uint64_t{1009}, std::uint64_t{20011}})
                    expect_allreduce(comm, log, chunk_cut(n, count), mode, op, false);
            }
        }
    });
}
