// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A property of the optimizers' passes that needs a real GPU: they can be captured into a graph, and the graph uses
// changed settings.

#include "support/cuda_graph.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "optim/pass_data.hpp"
#include "support/catch2.hpp"

namespace onebit {
namespace {

/// All passes, one after another; most work on the results of earlier passes.
std::vector<std::function<Status(cuda::Stream)>> all_passes(const DeviceModel& d, const cuda::Messages& messages,
                                                            const EncodedGradients& encoded, std::size_t sketches,
                                                            double* least, unsigned long long* first) {
    const cuda::Pieces pieces = d.pieces();
    float* const g = d.fused(0);
    float* const m = d.fused(1);
    float* const v = d.fused(kVariance);
    float* const precondition = d.fused(kPrecondition);
    float* const out = d.fused(kOutput);
    double* const numbers = d.numbers();
    float* const buckets = d.sketches();
    float* const total = d.total();
    const float* const factors = d.factors();
    return {
        [=](auto stream) {
            return cuda::look({pieces, g, first}, stream);
        },
        [=, &d, &encoded](auto stream) { return encoded.encode(d, messages.words, true, stream); },
        [=](auto stream) {
            return cuda::multiply({pieces, g, factors, g}, stream);
        },
        [=](auto stream) {
            return cuda::adam({pieces, g, factors, m, v}, stream);
        },
        [=](auto stream) {
            return cuda::moments({pieces, g, factors, m, v}, stream);
        },
        [=](auto stream) {
            return cuda::direction({pieces, m, v, out}, stream);
        },
        [=](auto stream) {
            return cuda::descend({pieces, out, nullptr}, stream);
        },
        [=](auto stream) {
            return cuda::invert_denominator({pieces, v, precondition}, stream);
        },
        [=](auto stream) {
            return cuda::momentum({pieces, nullptr, factors, m}, stream);
        },
        [=](auto stream) {
            return cuda::frozen_direction({pieces, m, precondition, out, true}, stream);
        },
        [=](auto stream) {
            return cuda::sum_squares({pieces, out, numbers}, stream);
        },
        [=](auto stream) {
            return cuda::refresh({pieces, m, g, precondition, v, out}, stream);
        },
        [=](auto stream) {
            return cuda::least({pieces, precondition, least}, stream);
        },
        [=](auto stream) {
            return cuda::step_alone({pieces, factors, precondition, m, g, out}, stream);
        },
        [=](auto stream) {
            return cuda::take_average({pieces, messages, m, v}, stream);
        },
        [=](auto stream) {
            return cuda::compressed_update({pieces, messages, precondition, factors, nullptr}, stream);
        },
        [=](auto stream) {
            return cuda::rejoin({pieces, messages, precondition, factors, factors, m, g}, stream);
        },
        [=](auto stream) { return cuda::narrow({pieces}, stream); },
        [=](auto stream) {
            return cuda::sketch({pieces, buckets}, stream);
        },
        [=](auto stream) {
            return cuda::add_sketches({buckets, sketches, total}, stream);
        },
    };
}

struct Outcome {
    Values values;
    std::vector<double> least;
    std::vector<float> corrected; ///< by the encoder
};

/// The outcome of two runs of all passes. `changing`: the second has other learning rates and corrections.
Outcome run_twice(bool captured, bool changing) {
    const HostModel host({4096, 1, 5000, 31, 12345, 64}, 2);
    DeviceModel device(host);
    const SomeMessages messages(host, ONEBIT_GROUP_BLOCK);
    device.set_messages(host, ONEBIT_GROUP_BLOCK, messages.begins);
    const DeviceArray<std::uint32_t> words(messages.words);
    const DeviceArray<std::uint32_t> mask(messages.mask);
    const DeviceArray<double> least(std::vector<double>(host.layout.segments().size()));
    const EncodedGradients encoded(host, ONEBIT_GROUP_BLOCK, messages);
    const DeviceArray<unsigned long long> first({cuda::kAllFinite});
    const auto passes =
        all_passes(device, {words.data(), mask.data()}, encoded, host.sketches(), least.data(), first.data());
    onebit_test::run_steps(
        captured, 2,
        [&](cudaStream_t stream) {
            for (const auto& pass : passes) REQUIRE(pass(stream).ok());
        },
        [&](int step) {
            std::vector<cuda::GroupSettings> settings(std::begin(kSettings), std::end(kSettings));
            for (cuda::GroupSettings& group : settings) {
                if (step == 0 || !changing) continue;
                group.update.lr *= 0.5F;
                group.update.correct_m = 1.1F;
            }
            device.set_settings(settings);
        });
    return {device.values(), least.get(), encoded.corrected()};
}

TEST_CASE(
    "passes that were captured into a graph give the same bits when it is replayed, by settings that have changed",
    "[cuda]") {
    const Outcome launched = run_twice(false, true);
    const Outcome replayed = run_twice(true, true);
    CHECK(replayed.values == launched.values);
    CHECK(same_bits(replayed.least, launched.least));
    CHECK(same_bits(replayed.corrected, launched.corrected));
    CHECK_FALSE(run_twice(true, false).values == launched.values);
    const std::vector<float>& parameters = launched.values.parameters;
    const auto finite = std::count_if(parameters.begin(), parameters.end(), [](float x) { return std::isfinite(x); });
    CHECK(static_cast<std::size_t>(finite) > parameters.size() / 2); // NaNs would all be alike
}

} // namespace
} // namespace onebit
