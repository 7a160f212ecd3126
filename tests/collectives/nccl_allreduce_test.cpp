// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands on a transport, on one over an emulated NCCL: the compressed allreduce with the CPU's bits, and a
// communicator, whose agreements lie in the host's memory.

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/flat_plain.hpp"
#include "compress/sign/cuda/cuda_sign_codec.hpp"
#include "support/data.hpp"
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

TEST_CASE("an allreduce over NCCL gives the CPU's bits", "[nccl]") {
    for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_TENSOR}) {
        for (const int ranks : {1, 2, 3}) {
            for (const std::size_t count : {1, 4099, 30011}) {
                CAPTURE(group, ranks, count);
                onebit_test::EmulatedNccl nccl;
                const auto on_gpu = onebit_test::run_nccl_ranks<Outcome>(
                    nccl, ranks, [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                        CudaSignCodec codec(ONEBIT_SCALE_L2, group, nullptr);
                        return run_rank(codec, count, *transport, outcome);
                    });
                const auto on_cpu = onebit_test::run_loopback_ranks<Outcome>(
                    static_cast<std::size_t>(ranks), [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                        std::unique_ptr<Codec> codec;
                        ONEBIT_RETURN_IF_ERROR(make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, group, 1, ""}, &codec));
                        return run_rank(*codec, count, *transport, outcome);
                    });
                for (std::size_t r = 0; r < on_gpu.size(); ++r) {
                    CHECK(on_gpu[r].status.message().empty());
                    CHECK(on_gpu[r].averages == on_cpu[r].averages);
                    CHECK(on_gpu[r].worker_error == on_cpu[r].worker_error);
                    CHECK(on_gpu[r].bytes_sent == on_cpu[r].bytes_sent);
                }
            }
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

} // namespace
} // namespace onebit
