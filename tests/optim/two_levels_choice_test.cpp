// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The algorithm of an optimizer's compressed exchange: which one config.algorithm asks for, and which one is used. All
// algorithms on one level have the same bits. optim/create_bad_input_test.cpp has the requests that are refused.
#include <fstream>

#include "optim/two_levels.hpp"
#include "support/directory.hpp"

using namespace onebit_test;

namespace {

Setup setup_of(onebit_optimizer_kind_t kind, onebit_algorithm_t algorithm, std::uint64_t bucket_size = 0) {
    Setup setup{quick_config(kind), {1400, 33, 4095, 1, 661, 2200}};
    setup.config.algorithm = algorithm;
    setup.config.bucket_size = bucket_size;
    setup.config.weight_decay = 0.1;
    leave_out(setup, {4});
    return setup;
}

// Trains both for `steps` steps, and expects the same bits on all ranks.
void expect_same(Training& a, Training& b, std::uint64_t steps, RankLog& log) {
    const Gradient gradient = beginning_late(gaussian_gradient(a.count(), 1), 1420, 1500, UINT64_MAX);
    a.steps(gradient, 1, steps);
    b.steps(gradient, 1, steps);
    ONEBIT_EXPECT(log, Snapshot(a).same_as(Snapshot(b)));
    ONEBIT_EXPECT(log, a.info().masked == 80 && a.info().compressed_rounds > 0);
}

std::string reason_of(Training& training) {
    return training.info().reason;
}

} // namespace

TEST_CASE("optimizers on two levels: flat, bruck and ring give the bits of pipelined", "[optimizer][two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    const onebit_optimizer_kind_t kind = GENERATE(from_range(freezing_kinds()));
    run_ranks(n, [kind](onebit_comm_t comm, RankLog& log) {
        for (const onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING}) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                log.context(name_of(kind) + ", algorithm " + std::to_string(algorithm) + ", buckets of " +
                            std::to_string(bucket_size));
                Training asked(comm, setup_of(kind, algorithm, bucket_size), log);
                Training pipelined(comm, setup_of(kind, ONEBIT_ALGORITHM_PIPELINED, bucket_size), log);
                expect_same(asked, pipelined, 30, log);
                const onebit_algorithm_t used = asked.info().algorithm;
                ONEBIT_EXPECT(log, used != ONEBIT_ALGORITHM_AUTO && used != ONEBIT_ALGORITHM_DENSE &&
                                       used != ONEBIT_ALGORITHM_TWO_LEVEL);
                ONEBIT_EXPECT(log, pipelined.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
                ONEBIT_EXPECT(log, !reason_of(asked).empty() && !reason_of(pipelined).empty());
            }
        }
    });
}

TEST_CASE("optimizers on two levels: flat, bruck and ring are on one level on nodes, too", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        const onebit_optimizer_kind_t kind = ONEBIT_OPTIMIZER_ONEBIT_ADAM;
        for (const onebit_algorithm_t algorithm :
             {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING}) {
            log.context("algorithm " + std::to_string(algorithm));
            Training asked(comm, setup_of(kind, algorithm), log);
            Training pipelined(comm, setup_of(kind, ONEBIT_ALGORITHM_PIPELINED), log);
            expect_same(asked, pipelined, 12, log);
        }
    });
}

TEST_CASE("optimizers on two levels: where there are no two, pipelined is taken and says why",
          "[optimizer][two_level]") {
    const auto [size, objection] = GENERATE(table<const char*, const char*>(
        {{"1", "each node has one rank"}, {"4", "all ranks are on one node"}, {"3", "different numbers of ranks"}}));
    if (!can_have_ranks(4)) return;
    const Variable node_size("ONEBIT_NODE_SIZE", size);
    run_ranks(4, [objection = objection](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                log.context(name_of(kind) + ", buckets of " + std::to_string(bucket_size));
                Training asked(comm, setup_of(kind, ONEBIT_ALGORITHM_TWO_LEVEL, bucket_size), log);
                Training pipelined(comm, setup_of(kind, ONEBIT_ALGORITHM_PIPELINED, bucket_size), log);
                ONEBIT_EXPECT(log, asked.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
                ONEBIT_EXPECT(log, reason_of(asked).find(objection) != std::string::npos);
                expect_same(asked, pipelined, 12, log);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: info says which, from the beginning, and why", "[optimizer][two_level]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : all_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                log.context(name_of(kind) + ", " + nodes.name());
                Training training(comm, setup_of(kind, ONEBIT_ALGORITHM_TWO_LEVEL, bucket_size), log);
                // Adam and LAMB compress nothing.
                const onebit_algorithm_t expected = freezes(kind) ? ONEBIT_ALGORITHM_TWO_LEVEL : ONEBIT_ALGORITHM_DENSE;
                ONEBIT_EXPECT(log, training.info().algorithm == expected && !reason_of(training).empty());
                const std::string reason = reason_of(training);
                training.steps(gaussian_gradient(training.count(), 1), 1, 8);
                ONEBIT_EXPECT(log, training.info().algorithm == expected && reason_of(training) == reason);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: Adam and LAMB take any algorithm and use none", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_LAMB}) {
            const Gradient gradient = gaussian_gradient(8390, 1);
            Training expected(comm, setup_of(kind, ONEBIT_ALGORITHM_AUTO), log);
            ONEBIT_EXPECT(log, expected.info().algorithm == ONEBIT_ALGORITHM_DENSE);
            expected.steps(gradient, 1, 5);
            for (const onebit_algorithm_t algorithm :
                 {ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK,
                  ONEBIT_ALGORITHM_RING}) {
                log.context(name_of(kind) + ", algorithm " + std::to_string(algorithm));
                Training training(comm, setup_of(kind, algorithm), log);
                ONEBIT_EXPECT(log, training.info().algorithm == ONEBIT_ALGORITHM_DENSE);
                training.steps(gradient, 1, 5);
                ONEBIT_EXPECT(log, Snapshot(training).same_as(Snapshot(expected)));
            }
        }
    });
}

TEST_CASE("optimizers on two levels: AUTO says what it has chosen, and is that", "[optimizer][two_level]") {
    const Nodes nodes = GENERATE(from_range(all_nodes()));
    run_nodes(nodes, [nodes](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            for (const std::uint64_t bucket_size : {std::uint64_t{0}, std::uint64_t{2500}}) {
                log.context(name_of(kind) + ", " + nodes.name() + ", buckets of " + std::to_string(bucket_size));
                Training chosen(comm, setup_of(kind, ONEBIT_ALGORITHM_AUTO, bucket_size), log);
                const onebit_algorithm_t algorithm = chosen.info().algorithm;
                ONEBIT_EXPECT(log, algorithm == ONEBIT_ALGORITHM_PIPELINED || algorithm == ONEBIT_ALGORITHM_TWO_LEVEL);
                ONEBIT_EXPECT(log, !reason_of(chosen).empty());
                ONEBIT_EXPECT(log, log.same_on_all(&algorithm, sizeof algorithm));
                Training asked(comm, setup_of(kind, algorithm, bucket_size), log);
                ONEBIT_EXPECT(log, asked.info().algorithm == algorithm);
                expect_same(chosen, asked, 10, log);
            }
        }
    });
}

TEST_CASE("optimizers on two levels: AUTO is what the environment says, if that compresses", "[optimizer][two_level]") {
    const auto [word, expected] = GENERATE(table<const char*, onebit_algorithm_t>({
        {"flat", ONEBIT_ALGORITHM_FLAT},
        {"pipelined", ONEBIT_ALGORITHM_PIPELINED},
        {"two_level", ONEBIT_ALGORITHM_TWO_LEVEL},
        {"bruck", ONEBIT_ALGORITHM_BRUCK},
        {"ring", ONEBIT_ALGORITHM_RING},
    }));
    const Variable forced("ONEBIT_ALGORITHM", word);
    run_nodes(two_by_two, [expected = expected, word = word](onebit_comm_t comm, RankLog& log) {
        log.context(word);
        Training chosen(comm, setup_of(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_ALGORITHM_AUTO), log);
        ONEBIT_EXPECT(log, chosen.info().algorithm == expected);
        ONEBIT_EXPECT(log, reason_of(chosen) == std::string("forced by ONEBIT_ALGORITHM=") + word);
        Training asked(comm, setup_of(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_ALGORITHM_PIPELINED), log);
        ONEBIT_EXPECT(log, asked.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
        chosen.steps(gaussian_gradient(chosen.count(), 1), 1, 8);
    });
}

// ONEBIT_ALGORITHM=dense is for allreduces.
TEST_CASE("optimizers on two levels: AUTO is the same whatever has been measured, and goes by a table",
          "[optimizer][two_level][tuning]") {
    const auto choose = [](const std::string& table, const char* forced, onebit_algorithm_t expected,
                           const std::string& source) {
        run_nodes(two_by_two, [&](onebit_comm_t comm, RankLog& log) {
            log.context(source);
            const SharedDirectory directory(log);
            const std::string path = directory.prefix("table.json");
            if (log.rank() == 0) std::ofstream(path) << table;
            log.barrier();
            if (!table.empty()) ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TUNING", path.c_str()));
            if (forced != nullptr) ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_ALGORITHM", forced));
            const auto expect = [&] {
                Training training(comm, setup_of(ONEBIT_OPTIMIZER_ONEBIT_ADAM, ONEBIT_ALGORITHM_AUTO), log);
                ONEBIT_EXPECT(log, expected == ONEBIT_ALGORITHM_AUTO || training.info().algorithm == expected);
                ONEBIT_EXPECT(log, reason_of(training).find(source) != std::string::npos);
                return reason_of(training);
            };
            const std::string before = expect();
            ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 20000, 0.02, nullptr));
            ONEBIT_EXPECT(log, expect() == before);
        });
    };
    const auto table = [](const char* pipelined, const char* two_level) {
        std::string rows;
        for (const char* const at : {"4", "100000"})
            rows += std::string(rows.empty() ? "" : ", ") + R"({"count": )" + at + R"(, "dense": 1, "pipelined": )" +
                    pipelined + R"(, "two_level": )" + two_level + "}";
        return R"({"format": "onebit tuning table", "version": 1, "ranks": 4, "nodes": 2, "rows": [)" + rows + "]}";
    };
    choose("", nullptr, ONEBIT_ALGORITHM_AUTO, "(estimated)");
    choose("", "dense", ONEBIT_ALGORITHM_AUTO, "(estimated)");
    choose(table("8", "9"), nullptr, ONEBIT_ALGORITHM_PIPELINED, "(tuned)");
    choose(table("9", "8"), nullptr, ONEBIT_ALGORITHM_TWO_LEVEL, "(tuned)");
}

TEST_CASE("optimizers on two levels: AUTO is pipelined where nodes have one rank each", "[optimizer][two_level]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable node_size("ONEBIT_NODE_SIZE", "1");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Training training(comm, setup_of(kind, ONEBIT_ALGORITHM_AUTO), log);
            ONEBIT_EXPECT(log, training.info().algorithm == ONEBIT_ALGORITHM_PIPELINED);
            ONEBIT_EXPECT(log, !reason_of(training).empty());
        }
    });
}

TEST_CASE("optimizers on two levels: they have bits of their own, and send less than half", "[optimizer][two_level]") {
    run_nodes(two_by_two, [](onebit_comm_t comm, RankLog& log) {
        for (const onebit_optimizer_kind_t kind : freezing_kinds()) {
            log.context(name_of(kind));
            Setup setup{quick_config(kind), {60000, 40001}};
            setup.config.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL;
            Training two(comm, setup, log);
            setup.config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
            Training one(comm, setup, log);
            const Gradient gradient = gaussian_gradient(two.count(), 1);
            two.steps(gradient, 1, 6);
            one.steps(gradient, 1, 6);
            // 0/1 Adam has compressed two rounds by now. For 1-bit Adam the algorithm makes no difference yet. 1-bit
            // LAMB's norms are sums of other parts, and may round differently.
            const std::vector<float> by_two = two.parameters(), by_one = one.parameters();
            if (kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB) {
                ONEBIT_EXPECT(log, two.info().compressed_rounds == 0);
                ONEBIT_EXPECT(log, nearly_same(by_two, by_one));
            } else {
                ONEBIT_EXPECT(log, same_bits(by_two, by_one) == (two.info().compressed_rounds == 0));
            }
            two.steps(gradient, 7, 9);
            one.steps(gradient, 7, 9);
            ONEBIT_EXPECT(log, !same_bits(two.parameters(), one.parameters()));
            const double less = static_cast<double>(two.info().compressed_bytes_sent);
            const double more = static_cast<double>(one.info().compressed_bytes_sent);
            // Of n = 4 ranks, N = 2 nodes of L = 2: (N-1)/N/L over (n-1)/n, a third, and what ranks agree on.
            ONEBIT_EXPECT(log, less > 0 && less < 0.4 * more);
        }
    });
}
