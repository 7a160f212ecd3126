// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Works through the elements in pieces, so that the check needs few buffers of the message's size.

#include "osu_validation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace onebit::bench {

namespace {

constexpr int kCalls = 20;
constexpr std::size_t kPiece = 65536; // elements

// Call k's input is the benchmark's input times one of these: powers of two, so that the products are exact and the
// sum of all inputs is known exactly; of both signs, so that a forgotten error cannot hide behind equal inputs.
constexpr std::array<float, 5> kFactors = {1.0F, -0.5F, 2.0F, 0.25F, -1.0F};

float factor(int call) {
    return kFactors[static_cast<std::size_t>(call) % kFactors.size()];
}

double largest_magnitude(const float* values, std::size_t count) {
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(static_cast<double>(values[i]));
        // Written so that a NaN ends up in `largest` instead of being passed over.
        if (!(magnitude <= largest)) largest = magnitude;
    }
    return largest;
}

// This rank's answer; the caller combines them.
bool same_as_rank_zero(const Ranks& ranks, const FloatBuffer& result, std::size_t count) {
    std::vector<float> piece(std::min(kPiece, count));
    bool same = true;
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
        const std::size_t length = std::min(kPiece, count - begin);
        std::memcpy(piece.data(), result.data() + begin, length * sizeof(float));
        MPI_Bcast(piece.data(), static_cast<int>(length), MPI_FLOAT, 0, ranks.comm);
        same = same && std::memcmp(piece.data(), result.data() + begin, length * sizeof(float)) == 0;
    }
    return same;
}

struct Errors {
    FloatBuffer worker;
    FloatBuffer server;
    std::uint64_t server_begin = 0;
    std::uint64_t server_count = 0;
};

Errors get_errors(const Ranks& ranks, onebit_allreduce_t allreduce, std::size_t count) {
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    require_success(ranks, onebit_allreduce_get_info(allreduce, &info), "onebit_allreduce_get_info");
    // A handle that is dense from the start keeps no errors to ask for: they are zero.
    if (info.algorithm == ONEBIT_ALGORITHM_DENSE) return {FloatBuffer(count), FloatBuffer(0), 0, 0};
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
    require_success(ranks, onebit_allreduce_get_error(allreduce, nullptr, nullptr, &begin, &length),
                    "onebit_allreduce_get_error");
    Errors errors{FloatBuffer(count), FloatBuffer(length), begin, length};
    require_success(ranks,
                    onebit_allreduce_get_error(allreduce, errors.worker.data(), errors.server.data(), nullptr, nullptr),
                    "onebit_allreduce_get_error");
    return errors;
}

// The largest |sum of results + mean worker error + server error - sum of averaged inputs|, the same on every rank.
double largest_imbalance(const Ranks& ranks, const std::vector<double>& result_sum, const Errors& errors,
                         const float* input, double factor_sum) {
    const std::size_t count = result_sum.size();
    std::vector<double> piece(std::min(kPiece, count));
    double largest = 0;
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
        const std::size_t length = std::min(kPiece, count - begin);
        for (std::size_t j = 0; j < length; ++j) {
            const std::size_t i = begin + j;
            piece[j] = (static_cast<double>(errors.worker[i]) - factor_sum * input[i]) / ranks.size;
            // Wraps round where i lies before the chunk: then it is no index of the chunk either.
            const std::uint64_t in_chunk = i - errors.server_begin;
            if (in_chunk < errors.server_count) piece[j] += static_cast<double>(errors.server[in_chunk]);
        }
        MPI_Allreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(length), MPI_DOUBLE, MPI_SUM, ranks.comm);
        for (std::size_t j = 0; j < length; ++j) {
            const double imbalance = std::fabs(result_sum[begin + j] + piece[j]);
            if (!(imbalance <= largest)) largest = imbalance;
        }
    }
    return largest;
}

} // namespace

bool validate_allreduce(const Ranks& ranks, onebit_allreduce_t allreduce,
                        const std::function<void(const float* input, float* output)>& run, const float* input,
                        std::size_t count) {
    require_success(ranks, onebit_allreduce_reset(allreduce), "onebit_allreduce_reset");
    FloatBuffer send(count);
    FloatBuffer result(count);
    std::vector<double> result_sum(count, 0.0);
    double factor_sum = 0;
    double magnitude = 0;
    bool same = true;
    for (int call = 0; call < kCalls; ++call) {
        factor_sum += static_cast<double>(factor(call));
        for (std::size_t i = 0; i < count; ++i) send[i] = factor(call) * input[i];
        run(send.data(), result.data());
        same = same_as_rank_zero(ranks, result, count) && same;
        for (std::size_t i = 0; i < count; ++i) result_sum[i] += static_cast<double>(result[i]);
        magnitude =
            std::max({magnitude, largest_magnitude(send.data(), count), largest_magnitude(result.data(), count)});
    }
    const Errors errors = get_errors(ranks, allreduce, count);
    magnitude = std::max({magnitude, largest_magnitude(errors.worker.data(), count),
                          largest_magnitude(errors.server.data(), errors.server_count)});
    MPI_Allreduce(MPI_IN_PLACE, &magnitude, 1, MPI_DOUBLE, MPI_MAX, ranks.comm);
    const double imbalance = largest_imbalance(ranks, result_sum, errors, input, factor_sum);

    // Each call rounds each element in a few places, each time by at most half an ulp of the largest value around.
    // A lost or doubled error would be about as large as the values themselves.
    const double tolerance = 8.0 * kCalls * static_cast<double>(std::numeric_limits<float>::epsilon()) * magnitude;
    int valid = same && std::isfinite(imbalance) && imbalance <= tolerance ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &valid, 1, MPI_INT, MPI_LAND, ranks.comm);
    return valid == 1;
}

} // namespace onebit::bench
