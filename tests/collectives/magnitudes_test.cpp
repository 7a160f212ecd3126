// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Values of all magnitudes in, only finite values out. An exact average is delivered, though the sum may overflow. A
// compressed call that succeeds leaves a finite result and finite errors, which together hold the input. A compressed
// call that doesn't succeed fails alike on every rank.
#include "support/magnitudes.hpp"

#include "support/environment.hpp"
#include "support/exact_averages.hpp"
#include "support/shared_values.hpp"

using namespace onebit_test;

namespace {

void expect_average(RankLog& log, const std::vector<float>& result, std::uint64_t seed, std::uint64_t step) {
    ONEBIT_EXPECT(log, all_finite(result));
    ONEBIT_EXPECT(log, is_average_of_magnitudes(result, seed, log.size(), step));
    ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size() * sizeof(float)));
}

// One rank's knowledge of the values still to be delivered, which a call must not lose.
struct Account {
    std::vector<double> owed; // the mean of all ranks' values and worker errors, plus the servers'
    double largest = 0;       // of the terms of that

    Account(RankLog& log, const std::vector<float>& values, const Errors& errors) : owed(values.size()) {
        add(log.gather_floats(values), 1.0 / log.size());
        add(log.gather_floats(errors.worker), 1.0 / log.size());
        std::size_t at = 0;
        for (const auto& server : log.gather_floats(errors.server)) {
            for (const float e : server) note(owed[at++] += e, e);
        }
    }
    void add(const std::vector<std::vector<float>>& by_rank, double share) {
        for (const auto& values : by_rank) {
            for (std::size_t i = 0; i < values.size(); ++i) note(owed[i] += share * values[i], values[i]);
        }
    }
    void note(double, double value) { largest = std::max(largest, std::fabs(value)); }
};

void expect_conserved(RankLog& log, const Account& before, const Account& after) {
    double lost = 0;
    for (std::size_t i = 0; i < before.owed.size(); ++i) {
        lost = std::max(lost, std::fabs(before.owed[i] - after.owed[i]));
    }
    const double largest = std::max(before.largest, after.largest);
    char text[64];
    std::snprintf(text, sizeof text, "lost %g of %g", lost, largest);
    log.expect(lost <= largest * 0x1p-20 + 0x1p-120, text, __FILE__, __LINE__);
}

// A call whose result and errors, if it succeeds, hold the input.
void expect_call(Allreduce& reduce, RankLog& log, const std::vector<float>& values) {
    const Account before(log, values, reduce.errors());
    std::vector<float> result(values.size());
    const onebit_status_t status = onebit_allreduce_run(reduce.get(), values.data(), result.data());
    ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
    ONEBIT_EXPECT(log, status == ONEBIT_SUCCESS || status == ONEBIT_ERROR_NONFINITE);
    const Errors errors = reduce.errors();
    ONEBIT_EXPECT(log, all_finite(errors.worker) && all_finite(errors.server));
    if (status != ONEBIT_SUCCESS) return;
    ONEBIT_EXPECT(log, all_finite(result));
    ONEBIT_EXPECT(log, log.same_on_all(result.data(), result.size() * sizeof(float)));
    Account after(log, std::vector<float>(values.size()), errors);
    after.add({result}, 1);
    expect_conserved(log, before, after);
}

void expect_calls(onebit_comm_t comm, RankLog& log, const onebit_allreduce_config_t& config, std::uint64_t seed) {
    Allreduce reduce(comm, config, log);
    for (std::uint64_t step = 0; step < 3 * magnitude_turns; ++step) {
        log.context("form " + std::to_string(config.algorithm) + ", codec " + std::to_string(config.codec) +
                    ", count " + std::to_string(config.count) + ", seed " + std::to_string(seed) + ", step " +
                    std::to_string(step));
        // One kind of values for a while, so that errors become of its magnitude; then all in turn.
        const std::uint64_t like = step < magnitude_turns ? 0 : step;
        std::vector<float> values = make_magnitudes(config.count, seed, log.rank(), like);
        if (step < magnitude_turns) {
            for (float& value : values) value /= 2;
        }
        expect_call(reduce, log, values);
    }
}

} // namespace

TEST_CASE("an exact average is delivered where the sum overflows", "[dense][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_check_t check = GENERATE(ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE);
    // Few values, a number for shared memory, so many that it checks on the way; and few in the way of many.
    const std::uint64_t count = GENERATE(as<std::uint64_t>(), 5, 1000, 5003, 70001, 300001);
    const bool in_nodes = GENERATE(false, true); // not through shared memory
    if (count > 100000 && in_nodes) return;
    const Variable node_size("ONEBIT_NODE_SIZE", in_nodes ? "1" : "64");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = dense_config(count);
        config.check = check;
        Allreduce reduce(comm, config, log);
        for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
            log.context(std::string("through ") + reduce.info().transport + ", step " + std::to_string(step));
            const std::vector<float> values = make_magnitudes(count, 1, log.rank(), step);
            std::vector<float> result = reduce.run(values);
            expect_average(log, result, 1, step);
            result = values; // in place
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), result.data(), result.data()));
            expect_average(log, result, 1, step);
        }
    });
}

TEST_CASE("an exact average is delivered of values that all ranks see", "[dense][magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const bool in_place = GENERATE(false, true);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 5003;
        Allreduce reduce(comm, dense_config(count), log);
        SharedValues values(comm, count, log), results(comm, count, log);
        for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
            put(make_magnitudes(count, 2, log.rank(), step), values.data());
            float* const to = in_place ? values.data() : results.data();
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), to));
            expect_average(log, get(to, count), 2, step);
            log.barrier(); // the values are looked at by all
        }
    });
}

TEST_CASE("a compressed form leaves finite results and errors, and loses nothing", "[magnitudes][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto seed = GENERATE(as<std::uint64_t>(), 1, 2, 3, 4);
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t form :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING}) {
            for (const Mode mode : every_mode()) expect_calls(comm, log, form_config(form, 9001, mode), seed);
        }
    });
}

TEST_CASE("so do tentative calls", "[magnitudes]") {
    const int n = GENERATE(from_range(rank_counts()));
    const auto seed = GENERATE(as<std::uint64_t>(), 1, 2);
    const Variable second_error("ONEBIT_SECOND_ERROR", "1");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        for (const Mode mode : every_mode()) {
            expect_calls(comm, log, form_config(ONEBIT_ALGORITHM_PIPELINED, 9001, mode), seed);
        }
    });
}

TEST_CASE("so do two levels, whose nodes' sums overflow", "[magnitudes][two_level]") {
    if (!can_have_ranks(4)) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "2");
    run_ranks(4, [&](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_TWO_LEVEL, 9001);
        for (std::uint64_t step = 0; step < 2 * magnitude_turns; ++step) {
            Allreduce reduce(comm, config, log);
            log.context("step " + std::to_string(step));
            const std::vector<float> values = make_magnitudes(9001, 1, log.rank(), step);
            std::vector<float> result(values.size());
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(reduce.get(), values.data(), result.data()));
            const Errors errors = reduce.errors();
            ONEBIT_EXPECT(log, all_finite(result) && all_finite(errors.worker) && all_finite(errors.server));
        }
    });
}
