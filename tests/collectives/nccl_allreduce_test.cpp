// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The users of a transport, on one over an emulated NCCL: the compressed allreduce with the CPU's bits, and a
// communicator, whose agreements lie in the host's memory.

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/allreduce.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/cuda/bootstrap.hpp"
#include "collectives/forms/flat_plain.hpp"
#include "compress/device_memory.hpp"
#include "compress/sign/cuda/cuda_sign_codec.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/environment.hpp"
#include "support/handles.hpp"
#include "support/loopback_ranks.hpp"
#include "support/nccl_ranks.hpp"

namespace onebit {
namespace {

using Values = std::vector<float>;

struct Outcome {
    std::vector<Values> averages; ///< by step
    Values worker_error;
    std::uint64_t bytes_sent = 0;
    Status status;
};

/// One rank's calls, on its own thread.
Status run_rank(Codec& codec, std::size_t count, Transport& transport, Outcome* outcome) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    FlatAllreduce flat(codec, count, rank, static_cast<std::size_t>(transport.size()), {});
    std::unique_ptr<PlainFlat> algorithm;
    ONEBIT_RETURN_IF_ERROR(PlainFlat::create(transport, flat, PlainFlat::kDirect, 0, &algorithm));
    AlignedBuffer<float> input(count, codec.memory());
    AlignedBuffer<float> output(count, codec.memory());
    const ArraySource source(input.data());
    const ArraySink sink(output.data());
    for (unsigned step = 0; step < 3; ++step) {
        const Values values =
            onebit_test::make_data(onebit_test::Kind::heavy_tailed, count, 1, static_cast<int>(rank), step);
        input.copy_from(values.data());
        algorithm->set_operands({.source = &source, .sink = &sink});
        ONEBIT_RETURN_IF_ERROR(onebit_test::run_stages(*algorithm));
        outcome->averages.emplace_back(count);
        output.copy_to(outcome->averages.back().data());
    }
    outcome->worker_error.resize(count);
    flat.worker().get_error(outcome->worker_error.data());
    outcome->bytes_sent = transport.bytes_sent();
    return codec.failure();
}

/// The results of the ranks' three calls of such an allreduce, on GPUs over an NCCL of either age and on the host.
void compare_with_host(const NcclApi& api, onebit_group_t group, int ranks, std::size_t count) {
    onebit_test::EmulatedNccl nccl;
    const auto on_gpu = onebit_test::run_nccl_ranks<Outcome>(
        nccl, ranks,
        [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
            CudaSignCodec codec(ONEBIT_SCALE_L2, group, nullptr);
            return run_rank(codec, count, *transport, outcome);
        },
        true, api);
    const auto on_cpu = onebit_test::run_loopback_ranks<Outcome>(
        static_cast<std::size_t>(ranks), [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
            std::unique_ptr<Codec> codec;
            ONEBIT_RETURN_IF_ERROR(make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, group, 1, ""}, &codec));
            return run_rank(*codec, count, *transport, outcome);
        });
    for (std::size_t r = 0; r < on_gpu.size(); ++r) {
        CHECK(on_gpu[r].status.message().empty());
        CHECK(std::ranges::equal(on_gpu[r].averages, on_cpu[r].averages, onebit_test::same_bits));
        CHECK(onebit_test::same_bits(on_gpu[r].worker_error, on_cpu[r].worker_error));
        // NCCL's own calls send what is left free after a message, too: of 2 exchanges of 3 calls.
        CHECK(on_gpu[r].bytes_sent >= on_cpu[r].bytes_sent);
        CHECK(on_gpu[r].bytes_sent <= on_cpu[r].bytes_sent + 2 * 3 * 12 * (on_gpu.size() - 1));
    }
}

TEST_CASE("an allreduce over NCCL gives the CPU's bits", "[nccl]") {
    for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
        for (const int ranks : {1, 2, 3}) {
            for (const std::size_t count : {1, 4099, 30011}) {
                CAPTURE(group, ranks, count);
                compare_with_host(onebit_test::EmulatedNccl::api(), group, ranks, count);
            }
        }
    }
}

/// How many exchanges of each kind a rank has made.
struct Calls {
    int all_to_all;
    int all_gather;
    int grouped;
    bool operator==(const Calls&) const = default;
};

Calls calls_of_each(int ranks) {
    const auto calls = [&](const char* name) { return onebit_test::EmulatedNccl::calls(name) / ranks; };
    return {calls("ncclAlltoAll"), calls("ncclAllGather"), calls("ncclGroupEnd")};
}

TEST_CASE("messages of equal length go by NCCL's own calls where it has them, others in groups", "[nccl]") {
    constexpr int kSteps = 3;
    const bool older = GENERATE(false, true);
    const onebit_group_t group = GENERATE(ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER);
    const NcclApi& api = older ? onebit_test::EmulatedNccl::older_api() : onebit_test::EmulatedNccl::api();
    const Calls none = {0, 0, 0};
    const Calls grouped = {0, 0, 2 * kSteps};
    const Calls native = older ? Calls{0, kSteps, kSteps} : Calls{kSteps, kSteps, 0};
    for (const int ranks : {1, 2, 3, 4, 5}) {
        const auto n = static_cast<std::size_t>(ranks);
        for (const std::size_t words : {1, 130}) {      // of each rank's chunk: less than a block, and more
            for (const std::size_t missing : {0, 31}) { // of the last word
                const std::size_t equal = 32 * n * words - missing;
                CAPTURE(older, group, ranks, equal);
                compare_with_host(api, group, ranks, equal);
                CHECK(calls_of_each(ranks) == (ranks == 1 ? none : native));
            }
            if (ranks == 1) continue;
            const std::size_t unequal = 32 * n * words + 1;
            CAPTURE(older, group, ranks, unequal);
            compare_with_host(api, group, ranks, unequal);
            CHECK(calls_of_each(ranks) == grouped);
        }
    }
}

TEST_CASE("a communicator on NCCL agrees, gathers and opens channels", "[nccl]") {
    struct Gathered {
        Status status;
        Status refused;
        std::vector<std::uint64_t> all;
    };
    onebit_test::EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Gathered>(nccl, 3, [](std::unique_ptr<Transport> transport, Gathered* outcome) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            const auto mine = static_cast<std::uint64_t>(100 + communicator->rank());
            outcome->all.resize(3);
            ONEBIT_RETURN_IF_ERROR(communicator->agree_and_gather({}, &mine, sizeof(mine), outcome->all.data()));
            outcome->refused = communicator->agree(
                communicator->rank() == 1 ? Status::error(ONEBIT_ERROR_MISMATCH, "made up") : Status());
            std::unique_ptr<Transport> channel;
            return communicator->open_channel(&channel);
        });
    for (const Gathered& outcome : outcomes) {
        CHECK(outcome.status.message().empty());
        CHECK(outcome.all == std::vector<std::uint64_t>{100, 101, 102});
        CHECK(outcome.refused.message() == "rank 1: made up");
    }
}

/// A handle's averages, and its info; made on any transport.
struct Averaged {
    Values average;
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    Status status;
};

constexpr std::size_t kCount = 9001;

Status run_handle(Communicator& communicator, onebit_memory_t memory, onebit_algorithm_t form, Averaged* outcome) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
    config.algorithm = form;
    config.memory = memory;
    std::unique_ptr<Allreduce> handle;
    ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &config, {}, &handle));
    AlignedBuffer<float> buffer(kCount, handle->codec().memory());
    for (unsigned step = 0; step < 3; ++step) {
        buffer.copy_from(
            onebit_test::make_data(onebit_test::Kind::gaussian, kCount, 1, communicator.rank(), step).data());
        ONEBIT_RETURN_IF_ERROR(handle->run(buffer.data(), buffer.data()));
    }
    outcome->average.resize(kCount);
    buffer.copy_to(outcome->average.data());
    handle->fill_info(&outcome->info);
    return {};
}

TEST_CASE("handles over NCCL, bootstrapped from other communicators, give the host's averages", "[nccl]") {
    const onebit_algorithm_t form =
        GENERATE(ONEBIT_ALGORITHM_FLAT, ONEBIT_ALGORITHM_PIPELINED, ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_AUTO);
    CAPTURE(form);
    const auto run = [&](std::unique_ptr<Transport> transport, bool over_nccl, Averaged* outcome) -> Status {
        std::unique_ptr<Communicator> base;
        ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &base));
        if (!over_nccl) return run_handle(*base, ONEBIT_MEMORY_HOST, form, outcome);
        std::unique_ptr<Transport> joined;
        ONEBIT_RETURN_IF_ERROR(bootstrap_nccl(&onebit_test::EmulatedNccl::api(), *base, Status(), nullptr, &joined));
        std::unique_ptr<Communicator> communicator;
        ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(joined), {}, &communicator));
        return run_handle(*communicator, ONEBIT_MEMORY_CUDA, form, outcome);
    };
    const onebit_test::Variable measure("ONEBIT_MEASURE", "0"); // which would take half a minute here
    const onebit_test::EmulatedNccl nccl;
    const auto run_all = [&](bool over_nccl) {
        return onebit_test::run_loopback_ranks<Averaged>(3,
                                                         [&](std::unique_ptr<Transport> transport, Averaged* outcome) {
                                                             return run(std::move(transport), over_nccl, outcome);
                                                         });
    };
    const std::vector<Averaged> on_gpu = run_all(true);
    for (const Averaged& outcome : on_gpu) {
        CAPTURE(outcome.status.message());
        REQUIRE(outcome.status.ok());
        CHECK(outcome.info.transport == std::string("nccl"));
        CHECK(outcome.average == on_gpu.front().average);
    }
    if (form == ONEBIT_ALGORITHM_AUTO) {
        CHECK_THAT(on_gpu.front().info.reason,
                   ContainsSubstring("9001 elements: dense") && ContainsSubstring("estimated"));
        return;
    }
    const std::vector<Averaged> on_host = run_all(false);
    if (form == ONEBIT_ALGORITHM_DENSE) { // in another order
        for (std::size_t i = 0; i < kCount; ++i) {
            REQUIRE(on_gpu[0].average[i] == Approx(on_host[0].average[i]).margin(1e-6));
        }
    } else {
        CHECK(on_gpu[0].average == on_host[0].average);
    }
}

TEST_CASE("over NCCL values lie in a GPU's memory, in the communicator's stream", "[nccl]") {
    struct Refused {
        std::vector<Status> said;
        Status status;
    };
    onebit_test::EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Refused>(nccl, 2, [](std::unique_ptr<Transport> transport, Refused* outcome) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(100);
            std::unique_ptr<Allreduce> handle;
            outcome->said.push_back(Allreduce::create(*communicator, &config, {}, &handle));
            config.memory = ONEBIT_MEMORY_CUDA;
            int elsewhere = 0;
            if (communicator->rank() == 1) config.stream = &elsewhere;
            outcome->said.push_back(Allreduce::create(*communicator, &config, {}, &handle));
            return Status();
        });
    for (const Refused& outcome : outcomes) {
        REQUIRE(outcome.status.ok());
        CHECK(outcome.said[0].code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK_THAT(outcome.said[0].message(), ContainsSubstring("config.memory") && ContainsSubstring("nccl"));
        CHECK(outcome.said[1].code() == ONEBIT_ERROR_INVALID_ARGUMENT);
        CHECK_THAT(outcome.said[1].message(), ContainsSubstring("rank 1") && ContainsSubstring("config.stream"));
    }
}

TEST_CASE("handles over NCCL that are started together may be asked in any order", "[nccl]") {
    struct Started {
        Values first;
        Values second;
        Status status;
    };
    onebit_test::EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Started>(nccl, 3, [](std::unique_ptr<Transport> transport, Started* outcome) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
            config.algorithm = ONEBIT_ALGORITHM_PIPELINED;
            config.memory = ONEBIT_MEMORY_CUDA;
            std::unique_ptr<Allreduce> handles[2];
            AlignedBuffer<float> buffers[2];
            for (unsigned h = 0; h < 2; ++h) {
                ONEBIT_RETURN_IF_ERROR(Allreduce::create(*communicator, &config, {}, &handles[h]));
                buffers[h] = AlignedBuffer<float>(kCount, handles[h]->codec().memory());
                buffers[h].copy_from(
                    onebit_test::make_data(onebit_test::Kind::gaussian, kCount, 1, communicator->rank(), h).data());
            }
            for (unsigned h = 0; h < 2; ++h) {
                ONEBIT_RETURN_IF_ERROR(handles[h]->start(buffers[h].data(), buffers[h].data()));
            }
            for (unsigned h = 0; h < 2; ++h) { // the first or the last first
                ONEBIT_RETURN_IF_ERROR(handles[communicator->rank() == 1 ? 1 - h : h]->wait());
            }
            for (Values* values : {&outcome->first, &outcome->second}) values->resize(kCount);
            buffers[0].copy_to(outcome->first.data());
            buffers[1].copy_to(outcome->second.data());
            return Status();
        });
    for (const Started& outcome : outcomes) {
        CAPTURE(outcome.status.message());
        REQUIRE(outcome.status.ok());
        CHECK(outcome.first == outcomes[0].first);
        CHECK(outcome.second == outcomes[0].second);
    }
}

TEST_CASE("a peer that doesn't come is a timeout over NCCL too, and the handle can be destroyed", "[nccl]") {
    struct Left {
        Status said;
        Status status;
    };
    const onebit_test::Variable timeout("ONEBIT_TIMEOUT", "0.5");
    const bool by_mask = GENERATE(false, true);
    CAPTURE(by_mask);
    onebit_test::EmulatedNccl nccl;
    const auto outcomes =
        onebit_test::run_nccl_ranks<Left>(nccl, 2, [&](std::unique_ptr<Transport> transport, Left* outcome) {
            std::unique_ptr<Communicator> communicator;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &communicator));
            onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(kCount);
            config.algorithm = ONEBIT_ALGORITHM_FLAT;
            config.memory = ONEBIT_MEMORY_CUDA;
            std::unique_ptr<Allreduce> handle;
            ONEBIT_RETURN_IF_ERROR(Allreduce::create(*communicator, &config, {}, &handle));
            AlignedBuffer<float> buffer(kCount, device_memory()); // which outlives the handle
            if (communicator->rank() == 0) {
                outcome->said = by_mask ? handle->set_mask(nullptr) : handle->run(buffer.data(), buffer.data());
                CHECK_FALSE(handle->check_not_broken().ok());
            }
            handle.reset();
            return Status();
        });
    CHECK(nccl.take_complaints() == std::vector<std::string>{"messages that nobody has received"});
    CHECK(outcomes[0].said.code() != ONEBIT_SUCCESS);
    for (const Left& outcome : outcomes) CHECK(outcome.status.message().empty());
}

TEST_CASE("a rank without NCCL fails the bootstrap on all ranks", "[nccl]") {
    struct Joined {
        Status status;
    };
    const auto outcomes =
        onebit_test::run_loopback_ranks<Joined>(3, [](std::unique_ptr<Transport> transport, Joined*) -> Status {
            std::unique_ptr<Communicator> base;
            ONEBIT_RETURN_IF_ERROR(Communicator::create(std::move(transport), {}, &base));
            const bool lacks = base->rank() == 1;
            const Status own =
                lacks ? Status::error(ONEBIT_ERROR_UNSUPPORTED, "NCCL can't be loaded: made up") : Status();
            std::unique_ptr<Transport> joined;
            return bootstrap_nccl(lacks ? nullptr : &onebit_test::EmulatedNccl::api(), *base, own, nullptr, &joined);
        });
    for (const Joined& outcome : outcomes) {
        CHECK(outcome.status.code() == ONEBIT_ERROR_UNSUPPORTED);
        CHECK(outcome.status.message() == "rank 1: NCCL can't be loaded: made up");
    }
}

} // namespace
} // namespace onebit
