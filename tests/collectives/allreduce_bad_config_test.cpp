// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Creation with bad, unsupported or disagreeing settings, and invalid handles.
#include <onebit/onebit_nccl.h>

#include <functional>
#include <thread>

#include "support/handles.hpp"
#include "support/sanitized.hpp"

using namespace onebit_test;

namespace {

using Spoil = std::function<void(onebit_allreduce_config_t&)>;

// `spoil` is applied on the ranks that `where` names; creation fails on all of them and gives NULL.
void expect_create_fails(onebit_comm_t comm, RankLog& log, onebit_status_t status, const std::string& needles,
                         bool spoil_here, const Spoil& spoil) {
    log.context("needles " + needles);
    onebit_allreduce_config_t config = flat_config(1000);
    if (spoil_here) spoil(config);
    onebit_allreduce_t handle = reinterpret_cast<onebit_allreduce_t>(&config);
    ONEBIT_EXPECT_FAILURE(log, status, needles, onebit_allreduce_create(comm, &config, &handle));
    ONEBIT_EXPECT(log, handle == nullptr);
}

void expect_works(onebit_comm_t comm, RankLog& log) { // whatever failed before, the communicator is as good as new
    log.context("afterwards");
    Allreduce reduce(comm, flat_config(1000), log);
    const std::vector<float> output = reduce.run_steps(1, 0, 1);
    ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
}

struct BadMember {
    const char* name;
    Spoil spoil;
};

const std::vector<BadMember>& bad_members() {
    using Config = onebit_allreduce_config_t;
    static const std::vector<BadMember> members = {
        {"size", [](Config& c) { c.size = 0; }},
        {"size", [](Config& c) { c.size -= 1; }},
        {"size", [](Config& c) { c.size += 8192; }},
        {"version", [](Config& c) { c.version = 0; }},
        {"version", [](Config& c) { c.version = 2; }},
        {"count", [](Config& c) { c.count = 0; }},
        {"datatype", [](Config& c) { c.datatype = static_cast<onebit_datatype_t>(4); }},
        {"memory", [](Config& c) { c.memory = static_cast<onebit_memory_t>(2); }},
        {"algorithm", [](Config& c) { c.algorithm = static_cast<onebit_algorithm_t>(ONEBIT_ALGORITHM_LEVELS + 1); }},
        {"codec", [](Config& c) { c.codec = static_cast<onebit_codec_t>(99); }},
        {"scale", [](Config& c) { c.scale = static_cast<onebit_scale_t>(2); }},
        {"group", [](Config& c) { c.group = static_cast<onebit_group_t>(2); }},
        {"check", [](Config& c) { c.check = static_cast<onebit_check_t>(3); }},
        {"check", [](Config& c) { c.check = static_cast<onebit_check_t>(0x40000000); }},
        {"config.op", [](Config& c) { c.op = static_cast<onebit_op_t>(2); }},
    };
    return members;
}

} // namespace

TEST_CASE("creation: bad members", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const BadMember& member : bad_members()) {
            const std::string name = member.name;
            expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, name, true, member.spoil);
            for (int faulty = 0; faulty < log.size(); ++faulty)
                expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, name + ";rank " + std::to_string(faulty),
                                    log.rank() == faulty, member.spoil);
        }
        expect_works(comm, log);
    });
}

TEST_CASE("creation: fewer elements than ranks", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // count 0 is tested elsewhere
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const std::uint64_t few = static_cast<std::uint64_t>(log.size()) - 1;
        expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "count", true,
                            [few](onebit_allreduce_config_t& config) { config.count = few; });
        expect_works(comm, log);
    });
}

TEST_CASE("creation: settings of one codec are refused with the others", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        using Config = onebit_allreduce_config_t;
        for (const Mode& mode : every_mode()) {
            if (mode.codec != ONEBIT_CODEC_TOPK && mode.codec != ONEBIT_CODEC_RANDOMK) {
                expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT,
                                    "config.kept;ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK", true,
                                    [&](Config& c) { c.codec = mode.codec, c.kept = 64; });
                expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.value_bits;ONEBIT_CODEC_TOPK",
                                    true, [&](Config& c) { c.codec = mode.codec, c.value_bits = 8; });
            }
            if (mode.codec == ONEBIT_CODEC_SIGN) continue;
            expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.scale;ONEBIT_CODEC_SIGN", true,
                                [&](Config& c) { c.codec = mode.codec, c.scale = ONEBIT_SCALE_L1; });
            expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.group;ONEBIT_CODEC_SIGN", true,
                                [&](Config& c) { c.codec = mode.codec, c.group = ONEBIT_GROUP_BUFFER; });
        }
        for (const onebit_codec_t codec : {ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK}) {
            for (const std::uint32_t kept : {129U, 4096U, UINT32_MAX}) {
                expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.kept;128", true,
                                    [&](Config& c) { c.codec = codec, c.kept = kept; });
            }
            for (const std::uint32_t bits : {1U, 4U, 16U, UINT32_MAX}) {
                expect_create_fails(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.value_bits", true,
                                    [&](Config& c) { c.codec = codec, c.value_bits = bits; });
            }
        }
        expect_works(comm, log);
    });
}

TEST_CASE("creation: a GPU where there is none is unsupported, with the reason", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_config_t config = flat_config(100);
        config.memory = ONEBIT_MEMORY_CUDA;
        onebit_allreduce_t handle = nullptr;
        const onebit_status_t status = onebit_allreduce_create(comm, &config, &handle);
        if (status != ONEBIT_SUCCESS) { // there may be one
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "cuda;rank 0;driver|device|built without", status);
            ONEBIT_EXPECT(log, handle == nullptr);
        }
        ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(handle));
        expect_works(comm, log);
    });
}

TEST_CASE("a communicator for GPUs where there is none is unsupported, with the reason", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_comm_t gpu = comm;
        const onebit_status_t status = onebit_comm_create_gpu(comm, nullptr, &gpu);
        if (status != ONEBIT_SUCCESS) { // there may be one
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_UNSUPPORTED, "driver|device|built without", status);
            ONEBIT_EXPECT(log, gpu == nullptr);
        }
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(gpu));
        expect_works(comm, log);
    });
}

TEST_CASE("creation: ranks that disagree", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) { // needs two ranks
        SUCCEED();
        return;
    }
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        using Config = onebit_allreduce_config_t;
        const std::vector<BadMember> members = {
            {"count", [](Config& c) { c.count = 1001; }},
            {"count", [](Config& c) { c.count = 1000 + (std::uint64_t{1} << 32); }}, // equal in its low half
            {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_DENSE; }},
            {"codec", [](Config& c) { c.codec = ONEBIT_CODEC_INT8; }},
            {"kept", [](Config& c) { c.kept = 32; }},
            {"value_bits", [](Config& c) { c.value_bits = 2; }},
            {"scale", [](Config& c) { c.scale = ONEBIT_SCALE_L1; }},
            {"group", [](Config& c) { c.group = ONEBIT_GROUP_BUFFER; }},
            {"check", [](Config& c) { c.check = ONEBIT_CHECK_NONE; }},
            {"config.op", [](Config& c) { c.op = ONEBIT_OP_SUM; }},
            {"datatype", [](Config& c) { c.datatype = ONEBIT_BFLOAT16; }},
        };
        for (const BadMember& member : members)
            for (int odd_one = 0; odd_one < log.size(); ++odd_one)
                expect_create_fails(comm, log, ONEBIT_ERROR_MISMATCH, std::string("rank;") + member.name,
                                    log.rank() == odd_one, member.spoil);
        // The number of threads is each rank's own.
        Config config = flat_config(1000);
        config.threads = log.rank() == 0 ? 1 : 2;
        Allreduce reduce(comm, config, log);
        expect_works(comm, log);
    });
}

TEST_CASE("creation: NULL arguments on one rank", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_allreduce_config_t config = flat_config(1000);
        const std::string who = "rank " + std::to_string(log.size() - 1);
        onebit_allreduce_t handle = reinterpret_cast<onebit_allreduce_t>(&handle);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";config;null",
                              onebit_allreduce_create(comm, log.last_rank() ? nullptr : &config, &handle));
        ONEBIT_EXPECT(log, handle == nullptr);
        ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";allreduce;null",
                              onebit_allreduce_create(comm, &config, log.last_rank() ? nullptr : &handle));
        ONEBIT_EXPECT(log, handle == nullptr);
        expect_works(comm, log);
    });
}

TEST_CASE("creation: more than there is memory", "[bad input]") {
    if (is_sanitized()) return; // it ends the process at such a request
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (int bits : {56, 60}) {
            expect_create_fails(comm, log, ONEBIT_ERROR_OUT_OF_MEMORY, "", true,
                                [bits](onebit_allreduce_config_t& config) { config.count = std::uint64_t{1} << bits; });
        }
        onebit_allreduce_config_t config = flat_config(UINT64_MAX); // sizes in bytes don't fit into 64 bits
        onebit_allreduce_t handle = nullptr;
        const onebit_status_t status = onebit_allreduce_create(comm, &config, &handle);
        ONEBIT_EXPECT(log, status == ONEBIT_ERROR_OUT_OF_MEMORY || status == ONEBIT_ERROR_INVALID_ARGUMENT);
        ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status));
        ONEBIT_EXPECT(log, handle == nullptr);
        expect_works(comm, log);
    });
}

namespace {

// Every function of an allreduce handle says INVALID_HANDLE; none touches anything.
void expect_no_handle(onebit_allreduce_t handle, RankLog& log) {
    float in[8] = {}, out[8] = {};
    int done = 7;
    std::uint64_t bytes = 7;
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    const onebit_status_t none = ONEBIT_ERROR_INVALID_HANDLE;
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_run(handle, in, out));
    ONEBIT_EXPECT(log, onebit_last_error()[0] != '\0');
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_start(handle, in, out));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_test(handle, &done));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_wait(handle));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_set_algorithm(handle, ONEBIT_ALGORITHM_FLAT));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_set_mask(handle, nullptr));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_get_info(handle, &info));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_reset(handle));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_get_error(handle, in, out, &bytes, &bytes));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_state_size(handle, &bytes));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_pack_state(handle, in, sizeof in));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_unpack_state(handle, in, sizeof in));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_save(handle, "/tmp/onebit-none"));
    ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_load(handle, "/tmp/onebit-none"));
    if (handle != nullptr) ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_destroy(handle));
}

} // namespace

TEST_CASE("handles that are NULL, destroyed, of another type or none at all", "[bad input]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        onebit_allreduce_t destroyed = nullptr;
        const onebit_allreduce_config_t config = flat_config(1000);
        ONEBIT_EXPECT_OK(log, onebit_allreduce_create(comm, &config, &destroyed));
        ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(destroyed));
        Allreduce newer(comm, config, log); // must not take the destroyed one's place
        ONEBIT_EXPECT(log, newer.get() != destroyed);
        double local = 0;
        log.context("NULL");
        expect_no_handle(nullptr, log);
        log.context("destroyed");
        expect_no_handle(destroyed, log);
        log.context("a communicator");
        expect_no_handle(reinterpret_cast<onebit_allreduce_t>(comm), log);
        log.context("a stack address");
        expect_no_handle(reinterpret_cast<onebit_allreduce_t>(&local), log);
        log.context("a wild number");
        expect_no_handle(reinterpret_cast<onebit_allreduce_t>(std::uintptr_t{1}), log);
        expect_no_handle(reinterpret_cast<onebit_allreduce_t>(~std::uintptr_t{0}), log);
        log.context("");
        ONEBIT_EXPECT_OK(log, onebit_allreduce_destroy(nullptr));

        int value = -1;
        onebit_allreduce_t created = newer.get();
        const onebit_comm_t wrong = reinterpret_cast<onebit_comm_t>(newer.get());
        for (onebit_comm_t bad : {static_cast<onebit_comm_t>(nullptr), wrong}) {
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_rank(bad, &value));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_size(bad, &value));
            ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_allreduce_create(bad, &config, &created));
            ONEBIT_EXPECT(log, created == nullptr);
        }
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_destroy(wrong));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_comm_rank(comm, nullptr));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_comm_size(comm, nullptr));
        onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_get_info(wrong, &info));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_comm_get_info(comm, nullptr));
        info.version = ONEBIT_COMM_INFO_VERSION + 1;
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_ARGUMENT, onebit_comm_get_info(comm, &info));
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(nullptr));
        newer.run_steps(1, 0, 1); // and nothing of it has harmed the one that is real
    });
}

TEST_CASE("a communicator knows its ranks, and what came of it outlives it", "[comm]") {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        int rank = -1, size = -1;
        ONEBIT_EXPECT_OK(log, onebit_comm_rank(comm, &rank));
        ONEBIT_EXPECT_OK(log, onebit_comm_size(comm, &size));
        ONEBIT_EXPECT(log, rank == log.rank() && size == log.size());
        onebit_comm_info_t info = ONEBIT_COMM_INFO_INIT;
        ONEBIT_EXPECT_OK(log, onebit_comm_get_info(comm, &info));
        ONEBIT_EXPECT(log, info.nodes == 1 && std::string(info.reason).empty());
        Allreduce reduce(comm, flat_config(777), log);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        log.comm_is_gone();
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_rank(comm, &rank));
        ONEBIT_EXPECT_STATUS(log, ONEBIT_ERROR_INVALID_HANDLE, onebit_comm_destroy(comm));
        const std::vector<float> output = reduce.run_steps(1, 0, 3);
        ONEBIT_EXPECT(log, log.same_on_all(output.data(), output.size() * sizeof(float)));
    });
}

TEST_CASE("statuses have names, messages belong to their thread", "[status]") {
    CHECK(std::string(onebit_status_string(ONEBIT_SUCCESS)) == "ONEBIT_SUCCESS");
    CHECK(std::string(onebit_status_string(ONEBIT_ERROR_BUSY)) == "ONEBIT_ERROR_BUSY");
    CHECK(std::string(onebit_status_string(ONEBIT_ERROR_INTERNAL)) == "ONEBIT_ERROR_INTERNAL");
    CHECK(std::string(onebit_status_string(static_cast<onebit_status_t>(14))) == "unknown status");
    CHECK(std::string(onebit_version()) == "0.1.0");

    onebit_comm_t comms[2] = {};
    CHECK(onebit_comm_create_loopback(0, comms) == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK(holds(onebit_last_error(), "ranks"));
    CHECK(onebit_comm_create_loopback(-3, comms) == ONEBIT_ERROR_INVALID_ARGUMENT);
    CHECK(onebit_comm_create_loopback(2, nullptr) == ONEBIT_ERROR_INVALID_ARGUMENT);
    const std::string message = onebit_last_error();
    CHECK(holds(message, "comms"));
    std::string fresh = "?", after_failure;
    std::thread([&] {
        fresh = onebit_last_error();
        (void)onebit_allreduce_wait(nullptr);
        after_failure = onebit_last_error();
    }).join();
    CHECK(fresh.empty());
    CHECK_FALSE(after_failure.empty());
    CHECK(onebit_last_error() == message); // another thread's failure is not ours
    CHECK(onebit_allreduce_destroy(nullptr) == ONEBIT_SUCCESS);
    CHECK(onebit_last_error() == message); // nor does a success clear it
}
