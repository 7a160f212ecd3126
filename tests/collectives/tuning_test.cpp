// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_comm_tune: AUTO chooses by its measurements; and the arguments that it refuses.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "support/directory.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

constexpr double kShort = 0.05; // seconds

onebit_allreduce_info_t info_of_auto(onebit_comm_t comm, RankLog& log, std::uint64_t count,
                                     onebit_codec_t codec = ONEBIT_CODEC_SIGN) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    config.codec = codec;
    return Allreduce(comm, config, log).info();
}

bool says(const onebit_allreduce_info_t& info, const char* text) {
    return std::string(info.reason).find(text) != std::string::npos;
}

} // namespace

TEST_CASE("AUTO goes by an estimate, and after tuning by what was measured", "[tuning]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const char* const alone = log.size() == 1 ? "one rank" : nullptr;
        ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 5000), alone ? alone : "(estimated)"));
        const SharedDirectory directory(log);
        const std::string path = directory.prefix("table.json");
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 20001, kShort, path.c_str()));
        for (const std::uint64_t count : {std::uint64_t{64}, std::uint64_t{5000}, std::uint64_t{100000}}) {
            const onebit_allreduce_info_t info = info_of_auto(comm, log, count);
            ONEBIT_EXPECT(log, says(info, alone ? alone : "(measured)"));
            ONEBIT_EXPECT(log, log.same_on_all(&info.algorithm, sizeof info.algorithm));
        }
        for (const Mode& mode : every_mode()) { // costs are each codec's own
            if (mode.codec == ONEBIT_CODEC_SIGN) continue;
            const onebit_allreduce_info_t info = info_of_auto(comm, log, 5000, mode.codec);
            ONEBIT_EXPECT(log, says(info, alone ? alone : "(estimated)"));
        }
        log.barrier();
        std::ifstream file(path);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        for (const std::string part :
             {"\"onebit tuning table\"", "\"count\":256", "\"count\":20001", "\"dense\":", "\"pipelined\":"}) {
            ONEBIT_EXPECT(log, text.find(part) != std::string::npos);
        }
        ONEBIT_EXPECT(log, text.find("\"ranks\":" + std::to_string(log.size())) != std::string::npos);
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 500, kShort, path.c_str())); // in place of the earlier one
    });
}

TEST_CASE("several codecs are tuned into one table, by which AUTO and choose_codec go in a later run",
          "[tuning][codec][deterministic]") {
    const int n = GENERATE(from_range(rank_counts()));
    const std::vector<onebit_codec_t> codecs = {ONEBIT_CODEC_INT4, ONEBIT_CODEC_FLOAT16, ONEBIT_CODEC_BFLOAT16,
                                                ONEBIT_CODEC_INT8};
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const char* const alone = log.size() == 1 ? "one rank" : nullptr;
        const auto expect_sources = [&](const char* of_these, const char* of_others) {
            for (const Mode& mode : every_mode()) {
                const bool named = std::ranges::count(codecs, mode.codec) != 0;
                const onebit_allreduce_info_t info = info_of_auto(comm, log, 5000, mode.codec);
                ONEBIT_EXPECT(log, says(info, alone ? alone : named ? of_these : of_others));
                ONEBIT_EXPECT(log, log.same_on_all(&info.algorithm, sizeof info.algorithm));
            }
        };
        const auto chosen = [&] {
            const onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(5000);
            onebit_codec_t codec = ONEBIT_CODEC_SIGN;
            ONEBIT_EXPECT_OK(log, onebit_allreduce_choose_codec(comm, &config, 0.02, &codec)); // of three of them
            ONEBIT_EXPECT(log, log.same_on_all(&codec, sizeof codec));
            return codec;
        };
        const SharedDirectory directory(log);
        const std::string path = directory.prefix("table.json");
        ONEBIT_EXPECT_OK(log,
                         onebit_comm_tune_codecs(comm, codecs.data(), codecs.size(), 20001, 4 * kShort, path.c_str()));
        expect_sources("(measured)", "(estimated)");
        chosen();
        log.barrier();

        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_DETERMINISTIC", "1"));
        expect_sources("(estimated)", "(estimated)");
        ONEBIT_EXPECT_OK(log, onebit_comm_set(comm, "ONEBIT_TUNING", path.c_str()));
        expect_sources("(tuned)", "(estimated)");
        const onebit_codec_t by_table = chosen();
        ONEBIT_EXPECT(log, chosen() == by_table);
    });
}

TEST_CASE("tuning: codecs that can't be tuned, and ranks that name others, are refused by all ranks",
          "[tuning][codec][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::vector<onebit_codec_t> good = {ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT8};
        const auto tune = [&](const std::vector<onebit_codec_t>& of_last) {
            const std::vector<onebit_codec_t>& codecs = log.last_rank() ? of_last : good;
            return onebit_comm_tune_codecs(comm, codecs.data(), codecs.size(), 1000, kShort, nullptr);
        };
        const std::string last = "rank " + std::to_string(log.size() - 1);
        ONEBIT_EXPECT_FAILURE(
            log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";codecs is NULL",
            onebit_comm_tune_codecs(comm, log.last_rank() ? nullptr : good.data(), 2, 1000, kShort, nullptr));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";num_codecs is 0", tune({}));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";codecs[1]: 77 is not a codec",
                              tune({ONEBIT_CODEC_INT8, static_cast<onebit_codec_t>(77)}));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";codecs[2]: ONEBIT_CODEC_INT8 is there twice",
                              tune({ONEBIT_CODEC_INT8, ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT8}));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, last + ";codecs[0]: ONEBIT_CODEC_POWERSGD",
                              tune({ONEBIT_CODEC_POWERSGD}));
        if (log.size() == 1) return;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "codecs", tune({ONEBIT_CODEC_SIGN}));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "codecs", tune({ONEBIT_CODEC_SIGN, ONEBIT_CODEC_INT4}));
        for (const onebit_codec_t codec : good) {
            ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 5000, codec), "(estimated)"));
        }
        ONEBIT_EXPECT_OK(log, tune({ONEBIT_CODEC_INT8, ONEBIT_CODEC_SIGN})); // in another order
        for (const onebit_codec_t codec : good) {
            ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 5000, codec), "(measured)"));
        }
    });
}

TEST_CASE("tuning: bad arguments are refused by all ranks and change nothing", "[tuning][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::string last = "rank " + std::to_string(log.size() - 1);
        for (const double seconds : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";seconds",
                                  onebit_comm_tune(comm, 1000, log.last_rank() ? seconds : kShort, nullptr));
        }
        const auto too_few = static_cast<std::uint64_t>(log.size() - 1);
        for (const std::uint64_t count : {too_few, UINT64_MAX}) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, last + ";max_count",
                                  onebit_comm_tune(comm, log.last_rank() ? count : 1000, kShort, nullptr));
        }
        if (log.size() > 1) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "max_count;1000;1001",
                                  onebit_comm_tune(comm, log.last_rank() ? 1001 : 1000, kShort, nullptr));
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "seconds",
                                  onebit_comm_tune(comm, 1000, log.last_rank() ? 0.01 : kShort, nullptr));
            ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 5000), "(estimated)"));
        }
        // Rank 0's path alone counts; a table that can't be written is used all the same.
        const SharedDirectory directory(log);
        const std::string nowhere = directory.prefix("no such folder/table.json");
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 300, kShort, log.rank() == 0 ? nullptr : nowhere.c_str()));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_IO, "rank 0;no such folder",
                              onebit_comm_tune(comm, 300, kShort, nowhere.c_str()));
        if (log.size() > 1) ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 5000), "(measured)"));
    });
}

TEST_CASE("between many nodes a ring is tuned for, too", "[tuning]") {
    if (!can_have_ranks(9)) return;
    const Variable node_size("ONEBIT_NODE_SIZE", "1"); // each rank counts as a node
    run_ranks(9, [](onebit_comm_t comm, RankLog& log) {
        const SharedDirectory directory(log);
        const std::string path = directory.prefix("table.json");
        ONEBIT_EXPECT_OK(log, onebit_comm_tune(comm, 300, kShort, path.c_str()));
        ONEBIT_EXPECT(log, says(info_of_auto(comm, log, 300), ", ring "));
        log.barrier();
        std::ifstream file(path);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        ONEBIT_EXPECT(log, text.find("\"ring\":") != std::string::npos);
    });
}
