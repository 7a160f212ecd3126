// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The compressed allreduce on a GPU's memory, over a transport that reaches only the host's: the same stages with
// another codec and transport, and the same bits as on the CPU. Runs on a GPU and on an emulated one.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/forms/flat_pipelined.hpp"
#include "collectives/forms/flat_plain.hpp"
#include "compress/sign/cuda/cuda_sign_codec.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/loopback_ranks.hpp"
#include "transport/staged.hpp"

namespace onebit {
namespace {

using Values = std::vector<float>;

enum class Where { kHost, kDevice };
enum class How { kPlain, kBruck, kPipelined, kRing };

struct Setting {
    onebit_group_t group;
    std::size_t ranks;
    std::size_t count;
    How how;
};

constexpr unsigned kSteps = 3;

/// A rank's final results.
struct Outcome {
    std::vector<Values> averages; ///< by step
    Values worker_error;
    std::uint64_t bytes_sent = 0;
    Status status;

    bool operator==(const Outcome& other) const {
        return averages == other.averages && worker_error == other.worker_error && bytes_sent == other.bytes_sent &&
               status.code() == other.status.code();
    }
};

std::unique_ptr<Codec> make_codec_for(Where where, const Setting& setting) {
    if (where == Where::kDevice) return std::make_unique<CudaSignCodec>(ONEBIT_SCALE_L2, setting.group, nullptr);
    std::unique_ptr<Codec> codec;
    (void)make_codec({ONEBIT_CODEC_SIGN, ONEBIT_SCALE_L2, setting.group, 1, ""}, &codec);
    return codec;
}

Status make_algorithm(const Setting& setting, Transport& transport, FlatAllreduce& flat,
                      std::unique_ptr<Algorithm>* algorithm) {
    if (setting.how == How::kPipelined || setting.how == How::kRing) {
        const auto way = setting.how == How::kRing ? PipelinedFlat::Way::kRing : PipelinedFlat::Way::kStraight;
        std::unique_ptr<PipelinedFlat> made;
        ONEBIT_RETURN_IF_ERROR(PipelinedFlat::create(transport, flat, way, 1, 0, &made));
        *algorithm = std::move(made);
        return {};
    }
    std::unique_ptr<PlainFlat> made;
    ONEBIT_RETURN_IF_ERROR(
        PlainFlat::create(transport, flat, setting.how == How::kBruck ? 2 : PlainFlat::kDirect, 0, &made));
    *algorithm = std::move(made);
    return {};
}

/// One rank's calls, on its own thread.
Status run_rank(const Setting& setting, Where where, std::unique_ptr<Transport> transport, Outcome* outcome) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    if (where == Where::kDevice) transport = make_staged_transport(std::move(transport), nullptr);
    const std::unique_ptr<Codec> codec = make_codec_for(where, setting);
    FlatAllreduce flat(*codec, setting.count, rank, setting.ranks, {});
    std::unique_ptr<Algorithm> algorithm;
    ONEBIT_RETURN_IF_ERROR(make_algorithm(setting, *transport, flat, &algorithm));
    AlignedBuffer<float> input(setting.count, codec->memory());
    AlignedBuffer<float> output(setting.count, codec->memory());
    const ArraySource source(input.data());
    const ArraySink sink(output.data());
    for (unsigned step = 0; step < kSteps; ++step) {
        const Values values =
            onebit_test::make_data(onebit_test::Kind::heavy_tailed, setting.count, 1, static_cast<int>(rank), step);
        input.copy_from(values.data());
        algorithm->set_operands({.source = &source, .sink = &sink});
        ONEBIT_RETURN_IF_ERROR(onebit_test::run_stages(*algorithm));
        outcome->averages.emplace_back(setting.count);
        output.copy_to(outcome->averages.back().data());
    }
    outcome->worker_error.resize(setting.count);
    flat.worker().get_error(outcome->worker_error.data());
    outcome->bytes_sent = transport->bytes_sent();
    return codec->failure();
}

std::vector<Outcome> run_all(const Setting& setting, Where where) {
    return onebit_test::run_loopback_ranks<Outcome>(setting.ranks,
                                                    [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                                                        return run_rank(setting, where, std::move(transport), outcome);
                                                    });
}

void compare_with_host(const Setting& setting) {
    CAPTURE(setting.how, setting.group, setting.ranks, setting.count);
    const std::vector<Outcome> on_gpu = run_all(setting, Where::kDevice);
    for (const Outcome& outcome : on_gpu) {
        CAPTURE(outcome.status.message());
        CHECK(outcome.status.ok());
        CHECK(outcome.averages == on_gpu.front().averages);
    }
    CHECK(on_gpu == run_all(setting, Where::kHost));
}

TEST_CASE("an allreduce on GPUs, its messages staged, gives the CPU's bits", "[cuda]") {
    for (const How how : {How::kPlain, How::kPipelined}) {
        for (const onebit_group_t group : {ONEBIT_GROUP_BLOCK, ONEBIT_GROUP_BUFFER}) {
            for (const std::size_t ranks : {2, 3}) {
                for (const std::size_t count : {1, 4099, 30011}) compare_with_host({group, ranks, count, how});
            }
            compare_with_host({group, 6, 200, how});    // of two words and of one: copies of several rows
            compare_with_host({group, 6, 26000, how});  // two pieces of each, the last ones not equally long
            compare_with_host({group, 17, 30011, how}); // more than a launch takes
            compare_with_host({group, 2, 150003, how}); // more blocks than a GPU is given pieces
        }
    }
}

TEST_CASE("messages that hop through other ranks can't lie in a GPU's memory, and say so", "[cuda]") {
    for (const auto& [how, name] : {std::pair(How::kBruck, "BRUCK"), std::pair(How::kRing, "RING")}) {
        for (const Outcome& outcome : run_all({ONEBIT_GROUP_BLOCK, 2, 100, how}, Where::kDevice)) {
            CHECK(outcome.status.code() == ONEBIT_ERROR_UNSUPPORTED);
            CHECK_THAT(outcome.status.message(), ContainsSubstring(name));
        }
    }
}

} // namespace
} // namespace onebit
