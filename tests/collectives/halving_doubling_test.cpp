// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Recursive halving and doubling with ranks as threads: against sums in double, on the host and on an emulated or a
// real GPU, whose memory the transport can't reach.

#include "collectives/sums/halving_doubling.hpp"

#include <cmath>
#include <memory>
#include <vector>

#include "numeric/cuda/cuda_arithmetic.hpp"
#include "support/catch2.hpp"
#include "support/data.hpp"
#include "support/loopback_ranks.hpp"
#include "transport/staged.hpp"

namespace onebit {
namespace {

using onebit_test::same_bits;
using Values = std::vector<float>;

enum class Where { kHost, kDevice };

struct Setting {
    std::size_t ranks;
    std::size_t count;
    bool in_place;
    bool sum_only;
    HalvingDoubling::Way way = HalvingDoubling::Way::kHalving;
};

constexpr unsigned kSteps = 2;

Values values_of(const Setting& setting, std::size_t rank, unsigned step) {
    return onebit_test::make_data(onebit_test::Kind::heavy_tailed, setting.count, 1, static_cast<int>(rank), step);
}

struct Outcome {
    std::vector<Values> results; ///< by step
    Status status;
    std::uint64_t bytes_sent = 0;
};

Status run_rank(const Setting& setting, Where where, std::unique_ptr<Transport> transport, Outcome* outcome) {
    const auto rank = static_cast<std::size_t>(transport->rank());
    std::unique_ptr<Arithmetic> arithmetic = std::make_unique<HostArithmetic>(1);
    if (where == Where::kDevice) {
        transport = make_staged_transport(std::move(transport), nullptr);
        arithmetic = std::make_unique<CudaArithmetic>(nullptr);
    }
    cuda::DeviceMemory device(nullptr);
    Memory& memory = where == Where::kDevice ? static_cast<Memory&>(device) : host_memory();
    std::unique_ptr<Algorithm> algorithm;
    ONEBIT_RETURN_IF_ERROR(
        HalvingDoubling::create(*transport, std::move(arithmetic), setting.count, setting.way, 0, &algorithm));
    AlignedBuffer<float> input(setting.count, memory);
    AlignedBuffer<float> output(setting.count, memory);
    for (unsigned step = 0; step < kSteps; ++step) {
        input.copy_from(values_of(setting, rank, step).data());
        AlignedBuffer<float>& result = setting.in_place ? input : output;
        algorithm->set_operands({.input = input.data(), .output = result.data(), .sum_only = setting.sum_only});
        ONEBIT_RETURN_IF_ERROR(onebit_test::run_stages(*algorithm));
        outcome->results.emplace_back(setting.count);
        result.copy_to(outcome->results.back().data());
    }
    outcome->bytes_sent = transport->bytes_sent();
    return {};
}

std::vector<Outcome> run_all(const Setting& setting, Where where) {
    return onebit_test::run_loopback_ranks<Outcome>(setting.ranks,
                                                    [&](std::unique_ptr<Transport> transport, Outcome* outcome) {
                                                        return run_rank(setting, where, std::move(transport), outcome);
                                                    });
}

/// Whether it is the sum, or the average, except for the possible rounding of that many additions in float.
bool is_right(const Setting& setting, unsigned step, const Values& result) {
    std::vector<double> sum(setting.count);
    std::vector<double> magnitude(setting.count);
    for (std::size_t r = 0; r < setting.ranks; ++r) {
        const Values values = values_of(setting, r, step);
        for (std::size_t i = 0; i < setting.count; ++i) {
            sum[i] += values[i];
            magnitude[i] += std::fabs(values[i]);
        }
    }
    const double share = setting.sum_only ? 1 : 1.0 / static_cast<double>(setting.ranks);
    for (std::size_t i = 0; i < setting.count; ++i) {
        const double most = magnitude[i] * share * 0x1p-24 * static_cast<double>(setting.ranks + 1);
        if (!(std::fabs(result[i] - sum[i] * share) <= most)) return false;
    }
    return true;
}

template <typename Body>
void for_each_setting(const std::vector<std::size_t>& all_ranks, const std::vector<std::size_t>& counts,
                      const Body& body) {
    for (const std::size_t ranks : all_ranks) {
        for (const std::size_t count : counts) {
            for (const bool in_place : {false, true}) {
                for (const auto way : {HalvingDoubling::Way::kHalving, HalvingDoubling::Way::kDoublingAlone}) {
                    CAPTURE(ranks, count, in_place, way);
                    body(Setting{ranks, count, in_place, !in_place, way});
                }
            }
        }
    }
}

TEST_CASE("recursive halving and doubling sums exactly, with the same bits on all ranks", "[halving]") {
    for_each_setting({1, 2, 3, 4, 5, 6, 7, 8, 11}, {1, 31, 33, 100, 4097, 20011}, [](const Setting& setting) {
        const std::vector<Outcome> outcomes = run_all(setting, Where::kHost);
        for (const Outcome& outcome : outcomes) {
            CAPTURE(outcome.status.message());
            REQUIRE(outcome.status.ok());
            for (unsigned step = 0; step < kSteps; ++step) {
                CHECK(same_bits(outcome.results[step], outcomes.front().results[step]));
            }
        }
        for (unsigned step = 0; step < kSteps; ++step) CHECK(is_right(setting, step, outcomes.front().results[step]));
    });
}

TEST_CASE("a rank of a power of two sends what a ring would, or all of it to each partner", "[halving]") {
    Setting setting = {4, 4096, false, false};
    for (const Outcome& outcome : run_all(setting, Where::kHost)) {
        CHECK(outcome.bytes_sent == kSteps * ring_bytes(setting.count * sizeof(float), 4));
    }
    setting.way = HalvingDoubling::Way::kDoublingAlone;
    for (const Outcome& outcome : run_all(setting, Where::kHost)) {
        CHECK(outcome.bytes_sent == kSteps * 2 * setting.count * sizeof(float));
    }
}

TEST_CASE("doubling alone is for few values, fewer the more ranks there are", "[halving]") {
    const auto is_alone = [](std::size_t count, std::size_t ranks) {
        return HalvingDoubling::quicker_way(count, ranks) == HalvingDoubling::Way::kDoublingAlone;
    };
    CHECK(is_alone(HalvingDoubling::kFew, 1));
    CHECK(is_alone(HalvingDoubling::kFew, 2));
    CHECK(is_alone(16384, 4));
    CHECK_FALSE(is_alone(16384, 5));
    CHECK(is_alone(4096, 256));
    CHECK_FALSE(is_alone(4097, 256));
}

TEST_CASE("on GPUs, over a transport that can't reach their memory, sums have the host's bits", "[halving][cuda]") {
    for_each_setting({1, 3, 4}, {1, 33, 8200}, [](const Setting& setting) {
        const std::vector<Outcome> on_gpu = run_all(setting, Where::kDevice);
        const std::vector<Outcome> on_host = run_all(setting, Where::kHost);
        for (std::size_t r = 0; r < setting.ranks; ++r) {
            CAPTURE(r, on_gpu[r].status.message());
            REQUIRE(on_gpu[r].status.ok());
            CHECK(on_gpu[r].bytes_sent == on_host[r].bytes_sent);
            for (unsigned step = 0; step < kSteps; ++step) {
                CHECK(same_bits(on_gpu[r].results[step], on_host[r].results[step]));
            }
        }
    });
}

} // namespace
} // namespace onebit
