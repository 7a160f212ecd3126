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

// Call k's input is the benchmark's input times one of these. They are powers of two, so that the products are exact
// and the sum of all inputs is known exactly. They have both signs, so that equal inputs cannot hide a forgotten error.
constexpr std::array<float, 5> kFactors = {1.0F, -0.5F, 2.0F, 0.25F, -1.0F};

float factor(int call) {
    return kFactors[static_cast<std::size_t>(call) % kFactors.size()];
}

double largest_magnitude(const float* values, std::size_t count) {
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double magnitude = std::fabs(static_cast<double>(values[i]));
        // With this form of the comparison a NaN gets into `largest` and is not skipped.
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

// The largest |sum over the ranks of term(i)| of all `count` elements, the same on every rank.
template <class Term>
double largest_sum(const Ranks& ranks, std::size_t count, Term&& term) {
    std::vector<double> piece(std::min(kPiece, count));
    double largest = 0;
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
        const std::size_t length = std::min(kPiece, count - begin);
        for (std::size_t j = 0; j < length; ++j) piece[j] = term(begin + j);
        MPI_Allreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(length), MPI_DOUBLE, MPI_SUM, ranks.comm);
        for (std::size_t j = 0; j < length; ++j) {
            const double magnitude = std::fabs(piece[j]);
            if (!(magnitude <= largest)) largest = magnitude;
        }
    }
    return largest;
}

// The largest possible error, divided by the largest input. If a code's error is at most r times the largest encoded
// magnitude (input and error together), this is r / (1 - r).
// A sign has no r: the error of an outlier grows for many calls. If results are zeros, as for elements that aren't
// kept, it comes to 7/2, the sum of the factors divided by the largest factor.
double largest_error(onebit_codec_t codec, onebit_algorithm_t algorithm) {
    if (algorithm == ONEBIT_ALGORITHM_DENSE) return 0;
    switch (codec) {
        case ONEBIT_CODEC_SIGN:
        case ONEBIT_CODEC_TERNARY: // no r either
        case ONEBIT_CODEC_INT2:
        case ONEBIT_CODEC_MEANS:
            return 5.0 / 2;
        case ONEBIT_CODEC_INT8: // r = 1 / 254
            return 1.0 / 253;
        case ONEBIT_CODEC_INT4: // r = 1 / 14
            return 1.0 / 13;
        case ONEBIT_CODEC_FP4: // r = 1 / 4
            return 1.0 / 3;
        case ONEBIT_CODEC_BFLOAT16: // r = 1 / 256
            return 1.0 / 255;
        case ONEBIT_CODEC_FLOAT16: // r = 1 / 2048
            return 1.0 / 2047;
        case ONEBIT_CODEC_TOPK:
        case ONEBIT_CODEC_RANDOMK:
        case ONEBIT_CODEC_POWERSGD: // nor a place where results are rounded once
            return 7.0 / 2;
    }
    return 0;
}

double largest_of_ranks(const Ranks& ranks, double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, ranks.comm);
    return value;
}

} // namespace

bool validate(const Ranks& ranks, Operation& operation, onebit_codec_t codec, const float* input) {
    operation.reset();
    const Shape shape = operation.shape();
    const bool whole = shape.output.count == shape.count;
    FloatBuffer send(shape.input.count);
    FloatBuffer result(shape.output.count);
    std::vector<double> result_sum(shape.output.count, 0.0);
    double factor_sum = 0;
    double largest_input = 0;
    double magnitude = 0;
    bool same = true;
    for (int call = 0; call < kCalls; ++call) {
        factor_sum += static_cast<double>(factor(call));
        for (std::size_t i = 0; i < shape.input.count; ++i) send[i] = factor(call) * input[i];
        operation.run_of(send.data(), result.data());
        if (whole) same = same_as_rank_zero(ranks, result, shape.count) && same;
        for (std::size_t i = 0; i < shape.output.count; ++i) result_sum[i] += static_cast<double>(result[i]);
        largest_input = std::max(largest_input, largest_magnitude(send.data(), shape.input.count));
        magnitude = std::max(magnitude, largest_magnitude(result.data(), shape.output.count));
    }
    const Errors errors = operation.errors();
    magnitude = std::max({magnitude, largest_input, largest_magnitude(errors.worker.data(), shape.input.count),
                          largest_magnitude(errors.server.data(), errors.served.count)});
    magnitude = largest_of_ranks(ranks, magnitude);
    largest_input = largest_of_ranks(ranks, largest_input);

    // This rank's part of the sum of the results minus the sum of the exact ones. A whole result is the same on all.
    const auto difference = [&](std::size_t i) {
        double value = 0;
        if (shape.input.has(i)) value -= factor_sum * input[i - shape.input.begin] / shape.divisor;
        if (shape.output.has(i) && (!whole || ranks.rank == 0)) value += result_sum[i - shape.output.begin];
        return value;
    };
    const auto imbalance_of = [&](std::size_t i) {
        double value = difference(i);
        if (shape.input.has(i)) value += static_cast<double>(errors.worker[i - shape.input.begin]) / shape.divisor;
        if (errors.served.has(i)) value += static_cast<double>(errors.server[i - errors.served.begin]);
        return value;
    };
    const double imbalance = largest_sum(ranks, shape.count, imbalance_of);

    // Each call rounds each element in a few places, each time by at most half an ulp of the largest value around.
    // A lost or doubled error would be about as large as the values themselves.
    const double tolerance = 8.0 * kCalls * static_cast<double>(std::numeric_limits<float>::epsilon()) * magnitude;
    int valid = same && std::isfinite(imbalance) && imbalance <= tolerance ? 1 : 0;
    if (shape.rounded_once) {
        const double limit = largest_error(codec, operation.info().algorithm) * largest_input + tolerance;
        if (!(largest_sum(ranks, shape.count, difference) <= limit)) valid = 0;
    }
    MPI_Allreduce(MPI_IN_PLACE, &valid, 1, MPI_INT, MPI_LAND, ranks.comm);
    return valid == 1;
}

} // namespace onebit::bench
