// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Subnormal numbers cost no time: a step whose moments have faded, an allreduce of subnormal values.
#include <algorithm>
#include <bit>
#include <ctime>
#include <limits>

#include "support/sanitized.hpp"
#include "support/training.hpp"

using namespace onebit_test;

namespace {

constexpr std::size_t count = 100000;
constexpr double most = 1.5; // some processors always take a fifth longer; others, with subnormals, seven times

// CPU time of this thread alone: other threads may use the core meanwhile.
template <typename Call>
double seconds_of(const Call& call) {
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    call();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

// The ratio of the two calls' times: the quickest of 20 runs of each, in turn. Measured again if the ratio is large,
// because other threads may have used the core during all runs.
template <typename Call, typename Other>
double ratio_of(const Call& call, const Other& other) {
    double ratio = 0;
    for (int attempt = 0; attempt < 5; ++attempt) {
        double mine = std::numeric_limits<double>::infinity(), theirs = mine;
        for (int i = 0; i < 20; ++i) {
            mine = std::min(mine, seconds_of(call));
            theirs = std::min(theirs, seconds_of(other));
        }
        ratio = mine / theirs;
        if (ratio <= most) break;
    }
    return ratio;
}

std::vector<float> subnormal_values(int rank) {
    std::vector<float> values = make_data(Kind::gaussian, count, 5, rank, 0);
    for (float& x : values) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x807fffffU);
    return values;
}

} // namespace

TEST_CASE("a step takes no longer once moments are subnormal", "[float-environment]") {
    if (is_sanitized()) return; // its own checks are most of the time
    const onebit_optimizer_kind_t kind = GENERATE(from_range(all_kinds()));
    const bool frozen = GENERATE(false, true);
    if (frozen && !freezes(kind)) return;
    run_ranks(1, [&](onebit_comm_t comm, RankLog& log) {
        onebit_optimizer_config_t config = optimizer_config(kind);
        if (frozen) config.freeze_step = 3;
        Training faded(comm, config, {count}, log);
        Training usual(comm, config, {count}, log);
        std::vector<float> gradients = make_data(Kind::gaussian, count, 5, 0, 0);
        gradients[0] = 0; // masked: both go by a mask after the freeze
        // v of one half and m of the other would be subnormal from now on, for hundreds of steps; messages entirely.
        std::vector<float> small = gradients;
        for (std::size_t i = 0; i < count; ++i) small[i] *= i % 2 == 0 && !freezes(kind) ? 1e-19F : 1e-37F;
        for (int t = 0; t < 4; ++t) {
            faded.step(small);
            usual.step(gradients);
        }
        faded.set_gradients(std::vector<float>(count, 0.0F));
        const double ratio = ratio_of([&] { ONEBIT_EXPECT_OK(log, onebit_optimizer_step(faded.get())); },
                                      [&] { ONEBIT_EXPECT_OK(log, onebit_optimizer_step(usual.get())); });
        log.context(name_of(kind) + ": " + std::to_string(ratio));
        ONEBIT_EXPECT(log, ratio <= most);
    });
}

TEST_CASE("an allreduce of subnormal values takes no longer", "[float-environment]") {
    if (is_sanitized()) return; // its own checks are most of the time
    const onebit_algorithm_t form = GENERATE(ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED);
    run_ranks(1, [&](onebit_comm_t comm, RankLog& log) {
        Allreduce reduce(comm, form_config(form, count), log);
        Allreduce usual(comm, form_config(form, count), log);
        const std::vector<float> tiny = subnormal_values(0), values = make_data(Kind::gaussian, count, 5, 0, 0);
        std::vector<float> result(count);
        const auto run = [&](const Allreduce& handle, const std::vector<float>& from) {
            ONEBIT_EXPECT_OK(log, onebit_allreduce_run(handle.get(), from.data(), result.data()));
        };
        const double ratio = ratio_of([&] { run(reduce, tiny); }, [&] { run(usual, values); });
        log.context("algorithm " + std::to_string(form) + ": " + std::to_string(ratio));
        ONEBIT_EXPECT(log, ratio <= most);
    });
}
