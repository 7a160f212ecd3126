// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The compressed and the dense allreduce against the oracle. Each step starts from the library's own error state
// (teacher forcing), so that rounding doesn't pile up and every step is judged to a few units in the last place.
#include <algorithm>

#include "support/handles.hpp"

using namespace onebit_test;

namespace {

// Float sums of 4096 terms in 32 lanes err by at most 128 + 5 roundings of 2^-24.
constexpr double scale_rounding = 1e-5;
constexpr double value_rounding = 1e-6;

struct Case {
    std::uint64_t count = 0;
    Mode mode = default_mode();
    Kind kind = Kind::gaussian;
    int steps = 3;
    bool in_place = false;
    bool misaligned = false;
    onebit_op_t op = ONEBIT_OP_AVERAGE;
    std::vector<std::uint32_t> mask; // empty: none
};

oracle::PerRank all_inputs(const Case& test, int ranks, int step) {
    oracle::PerRank inputs;
    for (int r = 0; r < ranks; ++r) {
        const std::vector<float> data = make_data(test.kind, test.count, 11, r, static_cast<std::uint64_t>(step));
        inputs.emplace_back(data.begin(), data.end());
    }
    return inputs;
}

// Loads the library's errors of all ranks into the oracle.
void teach(oracle::FlatAllreduce& reference, const Errors& mine, RankLog& log) {
    const auto workers = log.gather_floats(mine.worker);
    const auto servers = log.gather_floats(mine.server);
    std::uint64_t at = 0;
    for (std::size_t r = 0; r < workers.size(); ++r) {
        ONEBIT_EXPECT(log, workers[r].size() == reference.count());
        ONEBIT_EXPECT(log, servers[r].size() == reference.chunks()[r].count);
        std::copy(workers[r].begin(), workers[r].end(), reference.worker_error[r].begin());
        for (std::size_t i = 0; i < servers[r].size() && at < reference.count(); ++i)
            reference.server_error[at++] = servers[r][i];
    }
    ONEBIT_EXPECT(log, at == reference.count());
}

std::string worst(const char* what, std::uint64_t i, double actual, double expected) {
    std::ostringstream text;
    text.precision(9);
    text << what << " of element " << i << " is " << actual << ", not " << expected;
    return text.str();
}

// One comparison recorded per array, not per element.
class Comparison {
  public:
    explicit Comparison(const char* what) : what_(what) {}
    void check(std::uint64_t i, double actual, double expected, double tolerance) {
        if (!(std::fabs(actual - expected) <= tolerance) && text_.empty()) text_ = worst(what_, i, actual, expected);
    }
    void finish(RankLog& log, int line) { log.expect(text_.empty(), text_, __FILE__, line); }

  private:
    const char* what_;
    std::string text_;
};

// The library's output and new errors against one oracle step from the same errors. The oracle needs no input of the
// workers' signs: fl(x + e) has the sign of x + e. The servers' signs are taken from the output. They may differ from
// the oracle's only within rounding of zero.
void compare(oracle::FlatAllreduce& reference, const oracle::PerRank& inputs, const std::vector<float>& output,
             const Errors& after, RankLog& log) {
    const std::vector<double> server_before = reference.server_error;
    oracle::Signs signs;
    for (float y : output) signs.push_back(std::signbit(y) ? -1 : 1);
    reference.step(inputs, {}, signs);

    const std::size_t rank = static_cast<std::size_t>(log.rank());
    const oracle::Range chunk = reference.chunks()[rank];
    ONEBIT_EXPECT(log, after.begin == chunk.begin || chunk.count == 0);
    oracle::Vector sign_tolerance;
    Comparison result("the result"), worker("the worker error"), server("the server error");
    for (std::uint64_t i = 0; i < reference.count(); ++i) {
        double mean_scale = 0;
        for (const auto& scale : reference.worker_scale) mean_scale += scale[i] / reference.divisor();
        sign_tolerance.push_back(
            reference.takes_part(i) ? scale_rounding * mean_scale + value_rounding * std::fabs(server_before[i]) : 1.0);
        const double scales = scale_rounding * 1.5 * (mean_scale + reference.server_scale[i]);
        const double c = reference.worker_c[rank][i], s = reference.worker_scale[rank][i];
        result.check(i, output[i], reference.result[i], reference.takes_part(i) ? scales : 0);
        worker.check(i, after.worker[i], reference.worker_error[rank][i],
                     reference.takes_part(i) ? scale_rounding * s + value_rounding * std::fabs(c) : 0);
        if (i < chunk.begin || i >= chunk.end() || i - chunk.begin >= after.server.size()) continue;
        server.check(i, after.server[i - chunk.begin], reference.server_error[i],
                     reference.takes_part(i) ? scales + value_rounding * std::fabs(server_before[i]) : 0);
    }
    const std::int64_t wrong = oracle::first_implausible_sign(signs, reference.server_c, sign_tolerance);
    log.expect(wrong == -1, "sign of element " + std::to_string(wrong), __FILE__, __LINE__);
    result.finish(log, __LINE__);
    worker.finish(log, __LINE__);
    server.finish(log, __LINE__);
}

void compare_with_oracle(onebit_comm_t comm, RankLog& log, const Case& test) {
    log.context(std::to_string(test.count) + " " + test.mode.name() + " " + name_of(test.kind) +
                (test.in_place ? " in place" : "") + (test.misaligned ? " misaligned" : ""));
    onebit_allreduce_config_t config = flat_config(test.count, test.mode);
    config.op = test.op;
    Allreduce reduce(comm, config, log);
    oracle::FlatAllreduce reference(test.count, log.size(), test.mode.oracle_scale(), test.mode.oracle_group(),
                                    test.op == ONEBIT_OP_SUM ? oracle::Op::sum : oracle::Op::average);
    if (!test.mask.empty()) {
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), test.mask.data()));
        std::vector<bool> mask;
        for (std::uint64_t i = 0; i < test.count; ++i) mask.push_back((test.mask[i / 32] >> (i % 32) & 1) != 0);
        reference.set_mask(mask);
    }
    Buffer send(test.count, test.misaligned), receive(test.count, test.misaligned);
    for (int t = 0; t < test.steps; ++t) {
        teach(reference, reduce.errors(), log);
        const oracle::PerRank inputs = all_inputs(test, log.size(), t);
        const oracle::Vector& mine = inputs[static_cast<std::size_t>(log.rank())];
        const std::vector<float> input(mine.begin(), mine.end());
        send.set(input);
        Buffer& target = test.in_place ? send : receive;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), send.data(), target.data()));
        const std::vector<float> output = target.get();
        ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
        ONEBIT_EXPECT(log, test.in_place || same_bits(send.get(), input));
        compare(reference, inputs, output, reduce.errors(), log);
    }
    ONEBIT_EXPECT(log, send.guards_intact() && receive.guards_intact());
}

std::vector<std::uint64_t> odd_counts(int n) {
    const std::uint64_t ranks = static_cast<std::uint64_t>(n);
    return {ranks, ranks + 1, 31, 32, 33, 100, 4095, 4096, 4097, 4096 * ranks + 17};
}

} // namespace

TEST_CASE("allreduce equals the oracle at odd counts", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : odd_counts(log.size())) {
            for (const Mode& mode : all_modes()) {
                Case test;
                test.count = count;
                test.mode = mode;
                test.in_place = count % 2 == 1;
                compare_with_oracle(comm, log, test);
            }
        }
    });
}

TEST_CASE("a compressed sum equals the oracle", "[allreduce][sum]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const std::uint64_t count : odd_counts(log.size())) {
            for (const Mode& mode : all_modes()) {
                Case test;
                test.count = count;
                test.mode = mode;
                test.op = ONEBIT_OP_SUM;
                compare_with_oracle(comm, log, test);
            }
        }
    });
}

TEST_CASE("allreduce equals the oracle over many blocks", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : all_modes()) {
            Case test;
            test.count = 100003;
            test.mode = mode;
            test.kind = Kind::heavy_tailed;
            test.steps = 2;
            compare_with_oracle(comm, log, test);
        }
    });
}

TEST_CASE("allreduce takes buffers on any four bytes, in place or not", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (std::uint64_t count : {33u, 4097u, 10007u}) {
            for (int variant = 0; variant < 4; ++variant) {
                Case test;
                test.count = count;
                test.in_place = variant % 2 != 0;
                test.misaligned = variant / 2 != 0;
                compare_with_oracle(comm, log, test);
            }
        }
    });
}

TEST_CASE("allreduce keeps its promise for zeros, tiny and huge values", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (Kind kind : {Kind::zeros, Kind::tiny, Kind::huge, Kind::heavy_tailed}) {
            for (const Mode& mode : all_modes()) {
                Case test;
                test.count = 5003;
                test.kind = kind;
                test.mode = mode;
                compare_with_oracle(comm, log, test);
            }
        }
    });
}

TEST_CASE("allreduce of nothing but zeros is zero and leaves no error", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : all_modes()) {
            Allreduce reduce(comm, flat_config(4200, mode), log);
            const std::vector<float> zeros(4200, 0.0f), negative(4200, -0.0f);
            for (float y : reduce.run(log.rank() == 0 ? negative : zeros)) {
                if (y != 0) ONEBIT_EXPECT(log, y == 0);
            }
            const Errors errors = reduce.errors();
            for (float e : errors.worker)
                if (e != 0) ONEBIT_EXPECT(log, e == 0);
            for (float e : errors.server)
                if (e != 0) ONEBIT_EXPECT(log, e == 0);
        }
    });
}

TEST_CASE("masked elements are exactly zero and count in no scale", "[allreduce][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : all_modes()) {
            Case test;
            test.count = 9001;
            test.mode = mode;
            Random random(5, 0, 0); // the same mask on every rank
            for (std::uint64_t w = 0; w < (test.count + 31) / 32; ++w)
                test.mask.push_back(static_cast<std::uint32_t>(random.next()));
            for (std::size_t w = 20; w < 60; ++w) test.mask[w] = 0; // a long masked stretch
            compare_with_oracle(comm, log, test);
        }
        Case nothing;
        nothing.count = 200;
        nothing.mask.assign(7, 0);
        compare_with_oracle(comm, log, nothing);
    });
}

TEST_CASE("setting a mask zeroes its elements' errors; NULL takes it away", "[allreduce][mask]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(300), log), twin(comm, flat_config(300), log);
        reduce.run_steps(3, 0, 4);
        twin.run_steps(3, 0, 4);
        const Errors before = reduce.errors();
        std::vector<std::uint32_t> mask(10, 0xffffffffu);
        mask[1] = 0x0000ffffu;
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), mask.data()));
        mask.assign(10, 0); // copied, so this changes nothing
        const Errors after = reduce.errors();
        for (std::size_t i = 0; i < 300; ++i) {
            const bool inside = i < 48 || i >= 64;
            ONEBIT_EXPECT(log, after.worker[i] == (inside ? before.worker[i] : 0.0f));
            if (i < before.begin || i - before.begin >= before.server.size()) continue;
            const std::size_t k = i - before.begin;
            ONEBIT_EXPECT(log, after.server[k] == (inside ? before.server[k] : 0.0f));
        }
        const std::vector<float> masked = reduce.run_steps(3, 4, 1);
        ONEBIT_EXPECT(log, masked[47] != 0 && masked[48] == 0 && masked[63] == 0 && masked[64] != 0);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(reduce.get(), nullptr));
        ONEBIT_EXPECT(log, reduce.run_steps(3, 5, 1)[50] != 0);
        // A mask of ones is no mask at all.
        mask.assign(10, 0xffffffffu);
        Allreduce third(comm, flat_config(300), log);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_set_mask(third.get(), mask.data()));
        third.run_steps(3, 0, 4);
        ONEBIT_EXPECT(log, third.errors().same_as(twin.errors()));
    });
}

TEST_CASE("reset sets both errors to zero", "[allreduce]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, flat_config(500), log);
        const std::vector<float> first = reduce.run_steps(9, 0, 1);
        ONEBIT_EXPECT(log, !same_bits(reduce.run_steps(9, 0, 1), first)); // the result depends on the error
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(reduce.get()));
        const Errors errors = reduce.errors();
        for (float e : errors.worker)
            if (e != 0) ONEBIT_EXPECT(log, e == 0);
        for (float e : errors.server)
            if (e != 0) ONEBIT_EXPECT(log, e == 0);
        ONEBIT_EXPECT(log, same_bits(reduce.run_steps(9, 0, 1), first));
    });
}
