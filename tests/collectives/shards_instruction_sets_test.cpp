// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Each instruction set of this machine gives a reduce-scatter and an all-gather the same bits, with any number of
// threads. For one process alone, as optim/instruction_sets_test.cpp.
#include "support/kernels.hpp"
#include "support/magnitudes.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

constexpr int ranks = 3;

// All visible results of some calls, by rank.
template <class Collective>
oracle::FloatsPerRank history_with(const char* kernels, std::uint32_t threads, const Cut& cut,
                                   onebit_algorithm_t algorithm) {
    oracle::FloatsPerRank histories(ranks);
    const Variable chosen("ONEBIT_KERNELS", kernels);
    run_ranks(ranks, [&](onebit_comm_t comm, RankLog& log) {
        std::vector<float>& seen = histories[static_cast<std::size_t>(log.rank())];
        const auto see = [&](const std::vector<float>& values) {
            seen.insert(seen.end(), values.begin(), values.end());
        };
        for (const Mode& mode : every_mode()) {
            log.context(std::string(kernels) + ", " + mode.name());
            onebit_shard_config_t config = shard_config(cut, mode, algorithm);
            config.threads = threads;
            Shards<Collective> shards(comm, config, log);
            ONEBIT_EXPECT(log, std::string(shards.info().kernels) == kernels && shards.info().threads == threads);
            for (std::uint64_t step = 0; step < 4; ++step) see(shards.run_steps(17, step, 1));
            for (std::uint64_t step = 0; step < magnitude_turns; ++step) {
                std::vector<float> values = make_magnitudes(shards.input_count(), 3, log.rank(), step);
                for (float& value : values) value *= 0.125F; // so that nothing overflows
                const Outcome outcome = shards.call(values);
                see({static_cast<float>(outcome.status)});
                see(outcome.output);
            }
            see(shards.error());
        }
    });
    return histories;
}

} // namespace

TEMPLATE_TEST_CASE("every instruction set gives shards the same bits", "[shards][determinism]", ReduceScatter,
                   AllGather) {
    REQUIRE(available("reference"));
    const auto algorithm = GENERATE(ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE);
    for (const Cut& cut : {mixed_cut(ranks), chunk_cut(ranks, 14001)}) {
        const auto expected = history_with<TestType>("reference", 1, cut, algorithm);
        for (const char* name : {"reference", "sse4", "avx2", "avx512", "neon"}) {
            if (!available(name)) continue;
            for (const std::uint32_t threads : {1U, 3U}) {
                const auto actual = history_with<TestType>(name, threads, cut, algorithm);
                for (std::size_t r = 0; r < ranks; ++r) {
                    INFO(name << ", " << threads << " threads, " << cut.name << ", rank " << r << ", algorithm "
                              << algorithm);
                    CHECK(difference(actual[r], expected[r]).empty());
                }
            }
        }
    }
}
