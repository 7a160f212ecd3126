// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The reference for the halves of an allreduce: against cases worked out by hand, against the allreduce's references,
// and, for the sign's bits, against the library's allreduce, which consists of both halves.
#include "oracle/shards.hpp"

#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

std::vector<std::uint64_t> chunk_counts(std::uint64_t count, int ranks) {
    std::vector<std::uint64_t> counts;
    for (const oracle::Range& chunk : oracle::partition(count, ranks)) counts.push_back(chunk.count);
    return counts;
}

oracle::FloatsPerRank inputs_of(Kind kind, std::uint64_t count, int ranks, std::uint64_t step) {
    oracle::FloatsPerRank inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(make_data(kind, count, 19, r, step));
    return inputs;
}

} // namespace

TEST_CASE("the halves' oracle: signs and scales worked out by hand", "[oracle][shards]") {
    // c = {3, -4} has the mean magnitude 3.5 and the root mean square sqrt(12.5).
    const oracle::Sent l1 = oracle::send({0, oracle::Scale::l1}, {1, -3}, {2, -1}, {{0, 2}});
    CHECK(l1.values == oracle::Floats{3.5F, -3.5F});
    CHECK(l1.error == oracle::Floats{-0.5F, -0.5F});
    const oracle::Sent l2 = oracle::send({0, oracle::Scale::l2}, {3, -4}, {0, 0}, {{0, 2}});
    CHECK(l2.values[0] == 3.5355339F);
    CHECK(l2.values[1] == -3.5355339F);
    // A scale for each range, or one group.
    const std::vector<oracle::Range> ranges = {{0, 1}, {1, 0}, {1, 2}};
    CHECK(oracle::send({0, oracle::Scale::l1}, {8, 1, -3}, {0, 0, 0}, ranges).values == oracle::Floats{8, 2, -2});
    CHECK(oracle::send({0, oracle::Scale::l1, oracle::Group::tensor}, {8, 1, -3}, {0, 0, 0}, ranges).values ==
          oracle::Floats{4, 4, -4});
    // Squares outside a float's range.
    CHECK(oracle::send({0, oracle::Scale::l2}, {0x1p-100F}, {0}, {{0, 1}}).values == oracle::Floats{0x1p-100F});
    CHECK(oracle::send({0, oracle::Scale::l2}, {-0x1p100F}, {0}, {{0, 1}}).values == oracle::Floats{-0x1p100F});
    // A sum that overflows.
    CHECK_FALSE(oracle::send({0}, {3e38F}, {3e38F}, {{0, 1}}).finite);
    CHECK_FALSE(oracle::send({1}, {3e38F}, {3e38F}, {{0, 1}}).finite);
}

TEST_CASE("the halves' oracle: a reduce-scatter's average and sum worked out by hand", "[oracle][shards]") {
    for (const oracle::Op op : {oracle::Op::average, oracle::Op::sum}) {
        const float factor = op == oracle::Op::sum ? 2 : 1;
        oracle::ReduceScatter scatter({1, 2}, {0, oracle::Scale::l1}, op);
        scatter.step({{8, 1, -3}, {-2, 5, 7}});
        CHECK(scatter.results == oracle::FloatsPerRank{{3 * factor}, {4 * factor, 2 * factor}});
        CHECK(scatter.errors == oracle::FloatsPerRank{{0, -1, -1}, {0, -1, 1}});
    }
}

TEST_CASE("the halves' oracle: both are an allreduce of grouped codes and of few elements", "[oracle][shards]") {
    const int ranks = GENERATE(1, 2, 3, 5);
    const oracle::Code code = GENERATE(from_range(std::begin(oracle::all_codes), std::end(oracle::all_codes)));
    for (const std::uint64_t count : {5U, 33U, 1009U, 14001U}) {
        const std::vector<std::uint64_t> counts = chunk_counts(count, ranks);
        for (const oracle::Op op : {oracle::Op::average, oracle::Op::sum}) {
            oracle::CodedAllreduce reference(count, ranks, code, op);
            oracle::ReduceScatter scatter(counts, {static_cast<int>(code)}, op);
            oracle::AllGather gather(counts, {static_cast<int>(code)});
            for (std::uint64_t step = 0; step < 3; ++step) {
                const oracle::FloatsPerRank inputs = inputs_of(Kind::heavy_tailed, count, ranks, step);
                reference.step(inputs);
                scatter.step(inputs);
                gather.step(scatter.results);
                CHECK(same_bits(gather.result, reference.result));
                CHECK(scatter.errors == reference.worker_errors);
                CHECK(gather.errors == reference.server_errors);
            }
        }
    }
}

TEST_CASE("the halves' oracle: both are an allreduce of signs, to rounding", "[oracle][shards]") {
    const int ranks = GENERATE(1, 2, 3);
    for (const Mode& mode : all_modes()) {
        const std::vector<std::uint64_t> counts = chunk_counts(9001, ranks);
        oracle::FlatAllreduce reference(9001, ranks, mode.oracle_scale(), mode.oracle_group());
        oracle::ReduceScatter scatter(counts, coding_of(mode));
        oracle::AllGather gather(counts, coding_of(mode));
        const oracle::FloatsPerRank inputs = inputs_of(Kind::gaussian, 9001, ranks, 0);
        oracle::PerRank wide;
        for (const oracle::Floats& values : inputs) wide.emplace_back(values.begin(), values.end());
        reference.step(wide);
        scatter.step(inputs);
        gather.step(scatter.results);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < 9001; ++i) {
            if (!(std::fabs(gather.result[i] - reference.result[i]) <= 1e-5)) ++wrong;
            if (!(std::fabs(scatter.errors[0][i] - reference.worker_error[0][i]) <= 1e-5)) ++wrong;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("an allreduce has the bits of the halves' oracle", "[oracle][shards][allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto kind = GENERATE(Kind::gaussian, Kind::heavy_tailed, Kind::tiny, Kind::huge);
    for (const std::uint64_t count : {5U, 1009U, 9001U}) {
        for (const Mode& mode : every_mode()) {
            const std::vector<std::uint64_t> counts = chunk_counts(count, n);
            oracle::ReduceScatter scatter(counts, coding_of(mode));
            oracle::AllGather gather(counts, coding_of(mode));
            oracle::FloatsPerRank results;
            for (std::uint64_t step = 0; step < 4; ++step) {
                scatter.step(inputs_of(kind, count, n, step));
                gather.step(scatter.results);
                results.push_back(gather.result);
            }
            run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
                log.context(mode.name() + " " + std::to_string(count) + " " + name_of(kind));
                Allreduce reduce(comm, flat_config(count, mode), log);
                for (std::uint64_t step = 0; step < 4; ++step)
                    expect_bits(log, "the result", reduce.run(make_data(kind, count, 19, log.rank(), step)),
                                results[step]);
                const auto rank = static_cast<std::size_t>(log.rank());
                expect_bits(log, "the worker error", reduce.errors().worker, scatter.errors[rank]);
                expect_bits(log, "the server error", reduce.errors().server, gather.errors[rank]);
            });
        }
    }
}
