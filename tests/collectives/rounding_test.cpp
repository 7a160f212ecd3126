// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Integers that are rounded up or down at random.
#include <cmath>
#include <functional>

#include "support/handles.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

constexpr onebit_codec_t codecs[] = {ONEBIT_CODEC_INT8, ONEBIT_CODEC_INT4};
constexpr onebit_algorithm_t forms[] = {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_RING,
                                        ONEBIT_ALGORITHM_BRUCK};

onebit_allreduce_config_t config_of(onebit_codec_t codec, std::uint64_t count,
                                    onebit_algorithm_t form = ONEBIT_ALGORITHM_PIPELINED) {
    onebit_allreduce_config_t config = form_config(form, count, {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, codec});
    config.rounding = ONEBIT_ROUNDING_STOCHASTIC;
    return config;
}

// The deviation of the mean of that many calls without error feedback, in standard errors: 1 where a call's error is
// chance alone.
double deviation_of(onebit_comm_t comm, RankLog& log, const onebit_allreduce_config_t& config, int calls) {
    const std::size_t count = config.count;
    Allreduce reduce(comm, config, log);
    std::vector<double> exact(count), sums(count), squares(count);
    for (int r = 0; r < log.size(); ++r) {
        const std::vector<float> data = make_data(Kind::gaussian, count, 3, r, 0);
        for (std::size_t i = 0; i < count; ++i) exact[i] += double{data[i]} / log.size();
    }
    const std::vector<float> input = make_data(Kind::gaussian, count, 3, log.rank(), 0);
    for (int call = 0; call < calls; ++call) {
        const std::vector<float> result = reduce.run(input);
        for (std::size_t i = 0; i < count; ++i) {
            sums[i] += result[i];
            squares[i] += (result[i] - exact[i]) * (result[i] - exact[i]);
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(reduce.get())); // the number of calls stays
    }
    double deviations = 0, variances = 0; // of all elements together: some are hardly ever wrong
    for (std::size_t i = 0; i < count; ++i) {
        const double deviation = sums[i] / calls - exact[i];
        deviations += deviation * deviation;
        variances += squares[i] / calls / calls;
    }
    return std::sqrt(deviations / variances);
}

} // namespace

TEST_CASE("stochastic rounding: in the mean of many calls nothing is wrong", "[allreduce][rounding][long]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr int calls = 1000;
        for (const onebit_codec_t codec : codecs) {
            log.context("codec " + std::to_string(codec));
            onebit_allreduce_config_t config = config_of(codec, 700);
            const double stochastic = deviation_of(comm, log, config, calls);
            log.expect(stochastic > 0.85 && stochastic < 1.15, "off by " + std::to_string(stochastic), __FILE__,
                       __LINE__);
            config.rounding = ONEBIT_ROUNDING_NEAREST; // each call has the same error
            ONEBIT_EXPECT(log, deviation_of(comm, log, config, 20) > 4);
        }
    });
}

TEST_CASE("stochastic rounding: every form, thread and way of calling has the same bits, and nothing is lost",
          "[allreduce][rounding]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        constexpr std::uint64_t count = 14001, steps = 40;
        for (const onebit_codec_t codec : codecs) {
            std::vector<std::vector<float>> expected;
            for (const onebit_algorithm_t form : forms) {
                for (const onebit_check_t check : {ONEBIT_CHECK_FULL, ONEBIT_CHECK_NONE}) {
                    log.context("codec " + std::to_string(codec) + ", form " + std::to_string(form));
                    onebit_allreduce_config_t config = config_of(codec, count, form);
                    config.check = check;
                    config.threads = check == ONEBIT_CHECK_FULL ? 1 : 3;
                    Allreduce reduce(comm, config, log);
                    std::vector<double> balance(count, 0.0);
                    double largest = 0;
                    for (std::uint64_t t = 0; t < steps; ++t) {
                        for (int r = 0; r < log.size(); ++r) {
                            const std::vector<float> data = make_data(Kind::gaussian, count, 4, r, t);
                            for (std::size_t i = 0; i < count; ++i) balance[i] += double{data[i]} / log.size();
                        }
                        std::vector<float> result = make_data(Kind::gaussian, count, 4, log.rank(), t);
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_start(reduce.get(), result.data(), result.data()));
                        ONEBIT_EXPECT_OK(log, onebit_allreduce_wait(reduce.get()));
                        for (std::size_t i = 0; i < count; ++i) {
                            balance[i] -= result[i];
                            largest = std::max(largest, std::fabs(double{result[i]}));
                        }
                        if (expected.size() == t) expected.push_back(result);
                        expect_bits(log, "the result", result, expected[t]);
                        if (form != ONEBIT_ALGORITHM_FLAT && t == 3) break; // enough to compare
                    }
                    if (form != ONEBIT_ALGORITHM_FLAT) continue;
                    const Errors errors = reduce.errors();
                    for (const auto& worker : log.gather_floats(errors.worker)) {
                        for (std::size_t i = 0; i < count; ++i) balance[i] -= double{worker[i]} / log.size();
                    }
                    std::size_t at = 0;
                    for (const auto& server : log.gather_floats(errors.server)) {
                        for (const float e : server) balance[at++] -= e;
                    }
                    expect_balanced(log, balance, steps, largest);
                }
            }
        }
    });
}

TEST_CASE("stochastic rounding: draws go on after a load, and are others on each rank", "[allreduce][rounding]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t config = config_of(ONEBIT_CODEC_INT4, 9001);
        Allreduce reduce(comm, config, log), loaded(comm, config, log), fresh(comm, config, log);
        reduce.run_steps(6, 0, 3);
        const Bytes state = reduce.packed();
        ONEBIT_EXPECT_OK(log, onebit_allreduce_unpack_state(loaded.get(), state.data(), state.size()));
        expect_bits(log, "after a load", loaded.run_steps(6, 3, 2), reduce.run_steps(6, 3, 2));
        // The same values on every rank and in two calls, without an error of before.
        const std::vector<float> values = make_data(Kind::gaussian, 9001, 7, 0, 0);
        const std::vector<float> first = fresh.run(values);
        const auto workers = log.gather_floats(fresh.errors().worker);
        for (int r = 1; r < log.size(); ++r)
            ONEBIT_EXPECT(log, !same_bits(workers[0], workers[static_cast<std::size_t>(r)]));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_reset(fresh.get()));
        ONEBIT_EXPECT(log, !same_bits(fresh.run(values), first));
    });
}

TEST_CASE("stochastic rounding: a reduce-scatter and an all-gather are an allreduce", "[shards][rounding]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = chunk_cut(log.size(), 9001);
        onebit_shard_config_t config =
            shard_config(cut, {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT4}, ONEBIT_ALGORITHM_PIPELINED);
        config.rounding = ONEBIT_ROUNDING_STOCHASTIC;
        Shards<ReduceScatter> scatter(comm, config, log);
        Shards<AllGather> gather(comm, config, log);
        Allreduce reduce(comm, config_of(ONEBIT_CODEC_INT4, 9001), log);
        for (std::uint64_t step = 0; step < 4; ++step) {
            const std::vector<float> values = make_data(Kind::gaussian, 9001, 8, log.rank(), step);
            expect_bits(log, "both halves", gather.call(scatter.call(values).output).output, reduce.run(values));
        }
    });
}

namespace {

std::uint32_t mix(std::uint32_t x) {
    x = (x ^ x / 65536) * 2246822507u;
    x = (x ^ x / 8192) * 3266489909u;
    return x ^ x / 65536;
}

// The values that the first call sends of a shard in 8 bits, as docs/WIRE_FORMAT.md words it. `first`: the number of
// the shard's first element; `encoder`: 2 r or 2 r + 1.
std::vector<float> sent_of(const std::vector<float>& values, std::uint64_t first, int encoder) {
    const std::uint32_t g = 2654435769u;
    std::vector<float> sent(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t block = i / 4096 * 4096, group = block + (i - block) / 256 * 256;
        const std::size_t end = std::min({group + 256, block + 4096, values.size()});
        float largest = 0;
        for (std::size_t j = group; j < end; ++j) largest = std::max(largest, std::fabs(values[j]));
        const float scale = largest / 127, inverse = scale > 0 ? 1 / scale : 0;
        const std::uint32_t h =
            mix(mix(0 + g) + mix(static_cast<std::uint32_t>(encoder) + g) + static_cast<std::uint32_t>(first + block));
        const auto u = static_cast<std::int32_t>(mix(h + static_cast<std::uint32_t>(i - block + 1) * g));
        const float draw = static_cast<float>(std::floor(u / 256.0)) / 16777216.0f;
        const float moved = std::clamp(values[i] * inverse + draw, -127.0f, 127.0f);
        sent[i] = (std::nearbyint(moved) + 0.0f) * scale; // no negative zero
    }
    return sent;
}

} // namespace

TEST_CASE("stochastic rounding: what is drawn is what the page says", "[shards][rounding]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Cut& cut : {mixed_cut(log.size()), equal_cut(log.size(), 9001)}) {
            onebit_shard_config_t config =
                shard_config(cut, {ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, ONEBIT_CODEC_INT8}, ONEBIT_ALGORITHM_PIPELINED);
            config.rounding = ONEBIT_ROUNDING_STOCHASTIC;
            Shards<ReduceScatter> scatter(comm, config, log);
            Shards<AllGather> gather(comm, config, log);
            const std::vector<float> whole = make_data(Kind::gaussian, cut.total(), 5, log.rank(), 0);
            std::vector<float> errors, gathered;
            for (int r = 0; r < log.size(); ++r) {
                const oracle::Range shard = cut.shard(r);
                const std::vector<float> mine = part_of(whole, shard);
                const std::vector<float> sent = sent_of(mine, shard.begin, 2 * log.rank());
                for (std::size_t i = 0; i < mine.size(); ++i) errors.push_back(mine[i] - sent[i]);
                const std::vector<float> theirs = part_of(make_data(Kind::gaussian, cut.total(), 5, r, 0), shard);
                const std::vector<float> encoded = sent_of(theirs, shard.begin, 2 * r + 1);
                gathered.insert(gathered.end(), encoded.begin(), encoded.end());
            }
            ONEBIT_EXPECT(log, scatter.call(whole).status == ONEBIT_SUCCESS);
            expect_bits(log, "what workers send: the error", scatter.error(), errors);
            expect_bits(log, "what owners send", gather.call(part_of(whole, cut.shard(log.rank()))).output, gathered);
        }
    });
}

TEST_CASE("stochastic rounding: bad settings", "[allreduce][rounding][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        using Config = onebit_allreduce_config_t;
        const auto expect_fails = [&](onebit_status_t status, const char* needles,
                                      const std::function<void(Config&)>& spoil) {
            log.context(needles);
            Config config = config_of(ONEBIT_CODEC_INT8, 1000);
            spoil(config);
            onebit_allreduce_t handle = nullptr;
            ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_create(comm, &config, &handle));
            ONEBIT_EXPECT(log, handle == nullptr);
        };
        for (const Mode& mode : every_mode()) {
            if (mode.codec == ONEBIT_CODEC_INT8 || mode.codec == ONEBIT_CODEC_INT4) continue;
            expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.rounding;ONEBIT_CODEC_INT8, ONEBIT_CODEC_INT4",
                         [&](Config& c) { c.codec = mode.codec; });
        }
        expect_fails(ONEBIT_ERROR_INVALID_ARGUMENT, "config.rounding",
                     [](Config& c) { c.rounding = static_cast<onebit_rounding_t>(2); });
        if (log.size() > 1) {
            expect_fails(ONEBIT_ERROR_MISMATCH, "config.rounding;rank", [&](Config& c) {
                if (log.last_rank()) c.rounding = ONEBIT_ROUNDING_NEAREST;
            });
        }
        onebit_shard_config_t shards = ONEBIT_SHARD_CONFIG_INIT(1000 * static_cast<std::uint64_t>(log.size()));
        shards.rounding = ONEBIT_ROUNDING_STOCHASTIC; // of a sign
        onebit_all_gather_t gather = nullptr;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.rounding;ONEBIT_CODEC_SIGN",
                              onebit_all_gather_create(comm, &shards, &gather));
    });
}
