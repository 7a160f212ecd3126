// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// onebit_allreduce_choose_codec: the quickest of the codecs that are accurate enough, the same on every rank.
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "support/environment.hpp"
#include "support/handles.hpp"

using namespace onebit_test;

namespace {

onebit_codec_t chosen(onebit_comm_t comm, RankLog& log, std::uint64_t count, double max_error) {
    const onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_AUTO, count);
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
    ONEBIT_EXPECT_OK(log, onebit_allreduce_choose_codec(comm, &config, max_error, &codec));
    ONEBIT_EXPECT(log, log.same_on_all(&codec, sizeof codec));
    return codec;
}

} // namespace

TEST_CASE("by an estimate the codec that sends least is the quickest, and alone the finest", "[tuning][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const bool alone = log.size() == 1;
        const auto expect = [&](double max_error, onebit_codec_t codec) {
            log.context("at most " + std::to_string(max_error));
            const onebit_codec_t expected = alone ? ONEBIT_CODEC_FLOAT16 : codec;
            ONEBIT_EXPECT(log, chosen(comm, log, 1'000'000, max_error) == expected);
        };
        expect(0.0003, ONEBIT_CODEC_FLOAT16);
        expect(0.0024, ONEBIT_CODEC_FLOAT16);
        expect(0.01, ONEBIT_CODEC_INT8);
        expect(0.2, ONEBIT_CODEC_INT4);
        expect(0.5, ONEBIT_CODEC_INT2);
        expect(0.93, ONEBIT_CODEC_SIGN);
        expect(std::numeric_limits<double>::infinity(), ONEBIT_CODEC_RANDOMK);
    });
}

TEST_CASE("a codec is chosen by what was measured, once, and its handles know", "[tuning][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    const bool in_one_process = std::string(transport_name()) == "loopback"; // costs are equal on all ranks
    const char* const source = in_one_process ? "(estimated" : "(measured";
    run_ranks(n, [&](onebit_comm_t comm, RankLog& log) {
        const std::set<onebit_codec_t> fine = {ONEBIT_CODEC_FLOAT16, ONEBIT_CODEC_BFLOAT16, ONEBIT_CODEC_INT8};
        const onebit_codec_t codec = chosen(comm, log, 20000, 0.02);
        ONEBIT_EXPECT(log, fine.count(codec) == 1);
        ONEBIT_EXPECT(log, chosen(comm, log, 20000, 0.02) == codec); // nothing new is measured
        for (const onebit_codec_t known : fine) {
            onebit_allreduce_config_t config = form_config(ONEBIT_ALGORITHM_AUTO, 20000);
            config.codec = known;
            const std::string reason = Allreduce(comm, config, log).info().reason;
            log.context(reason);
            ONEBIT_EXPECT(log, log.size() == 1 || reason.find(source) != std::string::npos);
        }
    });
}

TEST_CASE("with a form that the environment wants a codec is chosen by an estimate of that form", "[tuning][codec]") {
    const int n = GENERATE(from_range(rank_counts()));
    for (const char* const form : {"ring", "flat", "dense"}) {
        const Variable algorithm("ONEBIT_ALGORITHM", form);
        run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
            const onebit_codec_t expected = log.size() == 1 ? ONEBIT_CODEC_FLOAT16 : ONEBIT_CODEC_INT8;
            ONEBIT_EXPECT(log, chosen(comm, log, 1'000'000, 0.02) == expected);
        });
    }
}

TEST_CASE("an error that no codec has, a config that can't be and ranks that differ are refused by all",
          "[tuning][codec][bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    const Variable measure("ONEBIT_MEASURE", "0");
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t usual = form_config(ONEBIT_ALGORITHM_AUTO, 1000);
        onebit_codec_t codec = ONEBIT_CODEC_SIGN;
        for (const double max_error : {0.0, -1.0, 1e-5, std::nan("")}) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "max_error;ONEBIT_CODEC_FLOAT16",
                                  onebit_allreduce_choose_codec(comm, &usual, max_error, &codec));
        }
        // Wrong on the last rank alone.
        onebit_allreduce_config_t config = usual;
        if (log.last_rank()) config.count = 0;
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.count",
                              onebit_allreduce_choose_codec(comm, &config, 1, &codec));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "config is NULL",
                              onebit_allreduce_choose_codec(comm, log.last_rank() ? nullptr : &usual, 1, &codec));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "codec is NULL",
                              onebit_allreduce_choose_codec(comm, &usual, 1, log.last_rank() ? nullptr : &codec));
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, "max_error",
                              onebit_allreduce_choose_codec(comm, &usual, log.last_rank() ? 0 : 1, &codec));
        // Settings that no handle can have.
        codec = ONEBIT_CODEC_FP4;
        for (const bool everywhere : {true, false}) {
            const auto expect_refused = [&](const char* needle, const auto& spoil) {
                config = usual;
                if (everywhere || log.last_rank()) spoil(config);
                const onebit_status_t status = onebit_allreduce_choose_codec(comm, &config, 1, &codec);
                const bool mismatch = !everywhere && log.size() > 1 && status == ONEBIT_ERROR_MISMATCH;
                ONEBIT_EXPECT(
                    log, status == ONEBIT_ERROR_INVALID_ARGUMENT || status == ONEBIT_ERROR_UNSUPPORTED || mismatch);
                ONEBIT_EXPECT(log, holds(onebit_last_error(), needle));
                ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status) && codec == ONEBIT_CODEC_FP4);
            };
            using Config = onebit_allreduce_config_t;
            expect_refused("config.memory", [](Config& c) { c.memory = static_cast<onebit_memory_t>(7); });
            expect_refused("config.error_type", [](Config& c) { c.error_type = static_cast<onebit_datatype_t>(7); });
            expect_refused("config", [](Config& c) {
                c.memory = ONEBIT_MEMORY_CUDA;
                c.error_type = ONEBIT_BFLOAT16;
            });
            expect_refused("config.datatype", [](Config& c) { c.datatype = ONEBIT_INT8; });
        }
        if (log.size() > 1) {
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "max_error",
                                  onebit_allreduce_choose_codec(comm, &usual, log.last_rank() ? 1 : 2, &codec));
            config = usual;
            if (log.last_rank()) config.count = 1001;
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_MISMATCH, "config.count",
                                  onebit_allreduce_choose_codec(comm, &config, 1, &codec));
        }
        ONEBIT_EXPECT(log, onebit_allreduce_choose_codec(nullptr, &usual, 1, &codec) == ONEBIT_ERROR_INVALID_HANDLE);
        chosen(comm, log, 1000, 1); // nothing is broken
    });
}
