// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Creation of a reduce-scatter or an all-gather with bad, unsupported or disagreeing settings, and invalid handles: one
// status on every rank, and a message that names the error.
#include <functional>

#include "support/sanitized.hpp"
#include "support/shard_handles.hpp"

using namespace onebit_test;

namespace {

using Config = onebit_shard_config_t;
using Spoil = std::function<void(Config&)>;

// 120 elements for each rank. `spoil` is applied where `here`; creation fails on all ranks and gives NULL.
template <class Collective>
void expect_create_fails(onebit_comm_t comm, RankLog& log, onebit_status_t status, const std::string& needles,
                         bool here, const Spoil& spoil) {
    log.context("needles " + needles);
    const Cut cut = equal_cut(log.size(), 120);
    Config config = shard_config(cut);
    if (here) spoil(config);
    auto handle = reinterpret_cast<typename Collective::Handle>(&config);
    ONEBIT_EXPECT_FAILURE(log, status, needles, Collective::create(comm, &config, &handle));
    ONEBIT_EXPECT(log, handle == nullptr);
}

template <class Collective>
void expect_works(onebit_comm_t comm, RankLog& log) { // whatever failed before, the communicator is as good as new
    log.context("afterwards");
    const Cut cut = mixed_cut(log.size());
    Shards<Collective> shards(comm, shard_config(cut), log);
    shards.run_steps(1, 0, 1);
    ONEBIT_EXPECT(log, shards.info().calls == 1);
}

struct BadMember {
    const char* name;
    Spoil spoil;
};

const std::vector<BadMember>& bad_members() {
    static const std::vector<BadMember> members = {
        {"size", [](Config& c) { c.size = 0; }},
        {"size", [](Config& c) { c.size -= 1; }},
        {"size", [](Config& c) { c.size += 8192; }},
        {"version", [](Config& c) { c.version = 0; }},
        {"version", [](Config& c) { c.version = 2; }},
        {"count", [](Config& c) { c.count = 0; }},
        {"count", [](Config& c) { c.count = 0, c.counts = nullptr; }},
        {"datatype", [](Config& c) { c.datatype = static_cast<onebit_datatype_t>(4); }},
        {"memory", [](Config& c) { c.memory = static_cast<onebit_memory_t>(2); }},
        {"algorithm", [](Config& c) { c.algorithm = static_cast<onebit_algorithm_t>(ONEBIT_ALGORITHM_LEVELS + 1); }},
        {"algorithm", [](Config& c) { c.algorithm = static_cast<onebit_algorithm_t>(-1); }},
        {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_FLAT; }},
        {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_TWO_LEVEL; }},
        {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_BRUCK; }},
        {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_RING; }},
        {"codec", [](Config& c) { c.codec = static_cast<onebit_codec_t>(99); }},
        {"codec", [](Config& c) { c.codec = static_cast<onebit_codec_t>(-1); }},
        {"scale", [](Config& c) { c.scale = static_cast<onebit_scale_t>(2); }},
        {"group", [](Config& c) { c.group = ONEBIT_GROUP_TENSOR; }},
        {"group", [](Config& c) { c.group = static_cast<onebit_group_t>(3); }},
        {"check", [](Config& c) { c.check = static_cast<onebit_check_t>(3); }},
        {"check", [](Config& c) { c.check = static_cast<onebit_check_t>(0x40000000); }},
        {"op", [](Config& c) { c.op = static_cast<onebit_op_t>(2); }},
    };
    return members;
}

// On all ranks, and on each alone.
template <class Collective>
void expect_refused(onebit_comm_t comm, RankLog& log, onebit_status_t status, const std::string& needles,
                    const Spoil& spoil) {
    expect_create_fails<Collective>(comm, log, status, needles, true, spoil);
    for (int faulty = 0; faulty < log.size(); ++faulty)
        expect_create_fails<Collective>(comm, log, status, needles + ";rank " + std::to_string(faulty),
                                        log.rank() == faulty, spoil);
}

} // namespace

TEMPLATE_TEST_CASE("shards' creation: bad members", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const BadMember& member : bad_members())
            expect_refused<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, member.name, member.spoil);
        if (TestType::gathers)
            expect_refused<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "op",
                                     [](Config& c) { c.op = ONEBIT_OP_SUM; });
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: settings of one codec are refused with the others", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        for (const Mode& mode : every_mode()) {
            if (mode.codec != ONEBIT_CODEC_TOPK && mode.codec != ONEBIT_CODEC_RANDOMK) {
                expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.kept;ONEBIT_CODEC_TOPK",
                                              true, [&](Config& c) { c.codec = mode.codec, c.kept = 64; });
                expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT,
                                              "config.value_bits;ONEBIT_CODEC_TOPK", true,
                                              [&](Config& c) { c.codec = mode.codec, c.value_bits = 8; });
            }
            if (mode.codec == ONEBIT_CODEC_SIGN) continue;
            expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "scale", true,
                                          [&](Config& c) { c.codec = mode.codec, c.scale = ONEBIT_SCALE_L1; });
            expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "group", true,
                                          [&](Config& c) { c.codec = mode.codec, c.group = ONEBIT_GROUP_BUFFER; });
        }
        for (const onebit_codec_t codec : {ONEBIT_CODEC_TOPK, ONEBIT_CODEC_RANDOMK}) {
            for (const std::uint32_t kept : {129U, 4096U, UINT32_MAX}) {
                expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.kept;128", true,
                                              [&](Config& c) { c.codec = codec, c.kept = kept; });
            }
            for (const std::uint32_t bits : {1U, 4U, 16U, UINT32_MAX}) {
                expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_INVALID_ARGUMENT, "config.value_bits", true,
                                              [&](Config& c) { c.codec = codec, c.value_bits = bits; });
            }
        }
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: what is reserved is unsupported", "[shards][bad input]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const onebit_status_t status = ONEBIT_ERROR_UNSUPPORTED;
        expect_create_fails<TestType>(comm, log, status, "memory|GPU|CUDA", true,
                                      [](Config& c) { c.memory = ONEBIT_MEMORY_CUDA; });
        // A rank that alone asks for it may get either message; all ranks get the same.
        const Cut cut = equal_cut(log.size(), 120);
        if (log.size() > 1) {
            Config config = shard_config(cut);
            if (log.last_rank()) config.memory = ONEBIT_MEMORY_CUDA;
            typename TestType::Handle handle = nullptr;
            const onebit_status_t told = TestType::create(comm, &config, &handle);
            ONEBIT_EXPECT(log, told == ONEBIT_ERROR_MISMATCH || told == ONEBIT_ERROR_UNSUPPORTED);
            ONEBIT_EXPECT(log, log.same_on_all(&told, sizeof told) && handle == nullptr);
        }
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: counts that are no cut of the whole", "[shards][bad input]", ReduceScatter,
                   AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto ranks = static_cast<std::uint64_t>(log.size());
        const onebit_status_t bad = ONEBIT_ERROR_INVALID_ARGUMENT;
        // They don't add up: too few, too many, nothing.
        for (const std::uint64_t last : {std::uint64_t{119}, std::uint64_t{121}, std::uint64_t{0}}) {
            std::vector<std::uint64_t> counts(ranks, 120);
            counts.back() = last;
            expect_refused<TestType>(comm, log, bad, "counts", [&](Config& c) { c.counts = counts.data(); });
        }
        expect_refused<TestType>(comm, log, bad, "stream", [](Config& c) { c.stream = &c; }); // the host has none
        const std::vector<std::uint64_t> nothing(ranks, 0);
        expect_refused<TestType>(comm, log, bad, "counts", [&](Config& c) { c.counts = nothing.data(); });
        if (ranks > 1) { // modulo 2^64 they do
            std::vector<std::uint64_t> counts(ranks, 120);
            counts[0] = ~std::uint64_t{0} - 5;
            counts[1] = 240 + 6;
            expect_refused<TestType>(comm, log, bad, "counts", [&](Config& c) { c.counts = counts.data(); });
            // Equal shards of an indivisible number.
            for (const std::uint64_t count : {120 * ranks + 1, 120 * ranks - 1, ranks + 1})
                expect_create_fails<TestType>(comm, log, bad, "count", true,
                                              [&](Config& c) { c.count = count, c.counts = nullptr; });
            // Fewer elements than ranks.
            std::vector<std::uint64_t> few(ranks, 1);
            few[0] = 0;
            expect_create_fails<TestType>(comm, log, bad, "count", true,
                                          [&](Config& c) { c.count = ranks - 1, c.counts = few.data(); });
            expect_create_fails<TestType>(comm, log, bad, "count", true,
                                          [&](Config& c) { c.count = ranks - 1, c.counts = nullptr; });
        }
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: ranks that disagree", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    if (n < 2) return;
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto ranks = static_cast<std::uint64_t>(log.size());
        std::vector<std::uint64_t> moved(ranks, 120), longer(ranks, 120), all_of_last(ranks, 0);
        ++moved[0], --moved[1];
        ++longer.back();
        all_of_last.back() = 120 * ranks;
        std::vector<BadMember> members = {
            {"count", [&](Config& c) { c.counts = moved.data(); }},
            {"count", [&](Config& c) { c.counts = all_of_last.data(); }},
            {"count", [&](Config& c) { c.count = 120 * ranks + 1, c.counts = longer.data(); }},
            {"count", [&](Config& c) { c.count = 121 * ranks, c.counts = nullptr; }},
            {"count", [&](Config& c) { c.count = ranks << 32, c.counts = nullptr; }},
            {"algorithm", [](Config& c) { c.algorithm = ONEBIT_ALGORITHM_DENSE; }},
            {"codec", [](Config& c) { c.codec = ONEBIT_CODEC_INT8; }},
            {"kept", [](Config& c) { c.kept = 32; }},
            {"error_type", [](Config& c) { c.error_type = ONEBIT_BFLOAT16; }},
            {"value_bits", [](Config& c) { c.value_bits = 2; }},
            {"datatype", [](Config& c) { c.datatype = ONEBIT_FLOAT16; }},
            {"scale", [](Config& c) { c.scale = ONEBIT_SCALE_L1; }},
            {"group", [](Config& c) { c.group = ONEBIT_GROUP_BUFFER; }},
            {"check", [](Config& c) { c.check = ONEBIT_CHECK_NONE; }},
        };
        if (!TestType::gathers) members.push_back({"op", [](Config& c) { c.op = ONEBIT_OP_SUM; }});
        for (const BadMember& member : members)
            for (int odd_one = 0; odd_one < log.size(); ++odd_one)
                expect_create_fails<TestType>(comm, log, ONEBIT_ERROR_MISMATCH, std::string("rank;") + member.name,
                                              log.rank() == odd_one, member.spoil);
        // The number of threads is each rank's own.
        const Cut cut = equal_cut(log.size(), 120);
        Config config = shard_config(cut);
        config.threads = log.rank() == 0 ? 1 : 2;
        ONEBIT_EXPECT(log, Shards<TestType>(comm, config, log).info().threads == config.threads);
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: NULL arguments on one rank", "[shards][bad input]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = equal_cut(log.size(), 120);
        const Config config = shard_config(cut);
        for (int faulty = 0; faulty < log.size(); ++faulty) {
            const bool here = log.rank() == faulty;
            const std::string who = "rank " + std::to_string(faulty);
            auto handle = reinterpret_cast<typename TestType::Handle>(&log);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";config;null",
                                  TestType::create(comm, here ? nullptr : &config, &handle));
            ONEBIT_EXPECT(log, handle == nullptr);
            ONEBIT_EXPECT_FAILURE(log, ONEBIT_ERROR_INVALID_ARGUMENT, who + ";" + TestType::argument + ";null",
                                  TestType::create(comm, &config, here ? nullptr : &handle));
            ONEBIT_EXPECT(log, handle == nullptr);
        }
        expect_works<TestType>(comm, log);
    });
}

TEMPLATE_TEST_CASE("shards' creation: more than there is memory", "[shards][bad input]", ReduceScatter) {
    if (is_sanitized()) return; // it ends the process at such a request
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const auto ranks = static_cast<std::uint64_t>(log.size());
        for (const std::uint64_t count : {ranks << 56, ~std::uint64_t{0} / ranks * ranks}) {
            Config config = ONEBIT_SHARD_CONFIG_INIT(count);
            config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
            typename TestType::Handle handle = nullptr;
            const onebit_status_t status = TestType::create(comm, &config, &handle);
            ONEBIT_EXPECT(log, status == ONEBIT_ERROR_OUT_OF_MEMORY || status == ONEBIT_ERROR_INVALID_ARGUMENT);
            ONEBIT_EXPECT(log, log.same_on_all(&status, sizeof status) && handle == nullptr);
        }
        expect_works<TestType>(comm, log);
    });
}

namespace {

// Every function says INVALID_HANDLE; none touches anything.
template <class Collective>
void expect_no_handle(typename Collective::Handle handle, RankLog& log) {
    float in[8] = {}, out[8] = {};
    int done = 7;
    std::uint64_t bytes = 7;
    onebit_shard_info_t info = ONEBIT_SHARD_INFO_INIT;
    const onebit_status_t none = ONEBIT_ERROR_INVALID_HANDLE;
    ONEBIT_EXPECT_STATUS(log, none, Collective::run(handle, in, out));
    ONEBIT_EXPECT(log, onebit_last_error()[0] != '\0');
    ONEBIT_EXPECT_STATUS(log, none, Collective::start(handle, in, out));
    ONEBIT_EXPECT_STATUS(log, none, Collective::test(handle, &done));
    ONEBIT_EXPECT_STATUS(log, none, Collective::wait(handle));
    ONEBIT_EXPECT_STATUS(log, none, Collective::set_callback(handle, nullptr, nullptr));
    ONEBIT_EXPECT_STATUS(log, none, Collective::set_algorithm(handle, ONEBIT_ALGORITHM_DENSE));
    ONEBIT_EXPECT_STATUS(log, none, Collective::get_info(handle, &info));
    ONEBIT_EXPECT_STATUS(log, none, Collective::reset(handle));
    ONEBIT_EXPECT_STATUS(log, none, Collective::get_error(handle, out));
    ONEBIT_EXPECT_STATUS(log, none, Collective::state_size(handle, &bytes));
    ONEBIT_EXPECT_STATUS(log, none, Collective::pack_state(handle, in, sizeof in));
    ONEBIT_EXPECT_STATUS(log, none, Collective::unpack_state(handle, in, sizeof in));
    ONEBIT_EXPECT_STATUS(log, none, Collective::save(handle, "/tmp/onebit-none"));
    ONEBIT_EXPECT_STATUS(log, none, Collective::load(handle, "/tmp/onebit-none"));
    if (handle != nullptr) ONEBIT_EXPECT_STATUS(log, none, Collective::destroy(handle));
    ONEBIT_EXPECT(log, bytes == 7 && out[0] == 0);
}

} // namespace

TEMPLATE_TEST_CASE("shards: handles that are NULL, destroyed, of another type or none at all", "[shards][bad input]",
                   ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        using Handle = typename TestType::Handle;
        const Cut cut = equal_cut(log.size(), 120);
        const Config config = shard_config(cut);
        Handle destroyed = nullptr;
        ONEBIT_EXPECT_OK(log, TestType::create(comm, &config, &destroyed));
        ONEBIT_EXPECT_OK(log, TestType::destroy(destroyed));
        Shards<TestType> newer(comm, config, log); // must not take the destroyed one's place
        ONEBIT_EXPECT(log, newer.get() != destroyed);
        Shards<OtherHalf<TestType>> other(comm, config, log);
        Allreduce reduce(comm, form_config(ONEBIT_ALGORITHM_PIPELINED, cut.total()), log);
        double local = 0;
        log.context("NULL");
        expect_no_handle<TestType>(nullptr, log);
        log.context("destroyed");
        expect_no_handle<TestType>(destroyed, log);
        log.context("a communicator");
        expect_no_handle<TestType>(reinterpret_cast<Handle>(comm), log);
        log.context("an allreduce");
        expect_no_handle<TestType>(reinterpret_cast<Handle>(reduce.get()), log);
        log.context("the other half");
        expect_no_handle<TestType>(reinterpret_cast<Handle>(other.get()), log);
        log.context("a stack address");
        expect_no_handle<TestType>(reinterpret_cast<Handle>(&local), log);
        log.context("a wild number");
        expect_no_handle<TestType>(reinterpret_cast<Handle>(std::uintptr_t{1}), log);
        expect_no_handle<TestType>(reinterpret_cast<Handle>(~std::uintptr_t{0}), log);
        log.context("");
        ONEBIT_EXPECT_OK(log, TestType::destroy(nullptr));

        const onebit_status_t none = ONEBIT_ERROR_INVALID_HANDLE;
        std::vector<float> values(cut.total());
        ONEBIT_EXPECT_STATUS(log, none, onebit_allreduce_wait(reinterpret_cast<onebit_allreduce_t>(newer.get())));
        ONEBIT_EXPECT_STATUS(log, none, onebit_comm_destroy(reinterpret_cast<onebit_comm_t>(newer.get())));
        for (const onebit_comm_t bad : {static_cast<onebit_comm_t>(nullptr), reinterpret_cast<onebit_comm_t>(&local),
                                        reinterpret_cast<onebit_comm_t>(newer.get())}) {
            Handle created = newer.get();
            ONEBIT_EXPECT_STATUS(log, none, TestType::create(bad, &config, &created));
            ONEBIT_EXPECT(log, created == nullptr);
        }
        newer.run_steps(1, 0, 1); // and nothing of it has harmed those that are real
        other.run_steps(1, 0, 1);
        reduce.run_steps(1, 0, 1);
    });
}

TEMPLATE_TEST_CASE("shards: a handle outlives its communicator", "[shards][comm]", ReduceScatter, AllGather) {
    const int n = GENERATE(from_range(rank_counts()));
    run_ranks(n, [](onebit_comm_t comm, RankLog& log) {
        const Cut cut = mixed_cut(log.size());
        Shards<TestType> shards(comm, shard_config(cut), log);
        ONEBIT_EXPECT_OK(log, onebit_comm_destroy(comm));
        log.comm_is_gone();
        shards.run_steps(1, 0, 3);
        ONEBIT_EXPECT(log, shards.info().calls == 3);
    });
}
