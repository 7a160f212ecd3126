// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/factors_plan.hpp"

#include <cstdio>
#include <span>

#include "collectives/communicator/compare_ranks.hpp"
#include "collectives/selection/estimates.hpp"
#include "core/hash.hpp"
#include "numeric/elements.hpp"

namespace onebit {
namespace {

std::span<const std::uint64_t> shapes_of(const onebit_allreduce_config_t& config) {
    return {config.shapes, config.shapes == nullptr ? 0 : 2 * config.num_shapes};
}

std::size_t rank_of(const onebit_allreduce_config_t& config) {
    return config.matrix_rank == 0 ? kDefaultRank : config.matrix_rank;
}

/// The time of the three passes over memory by one thread; and what each direction adds.
constexpr double kPassesUsPerElement = 1.3e-3;
constexpr double kUsPerElementAndDirection = 0.15e-3;

} // namespace

Status check_shapes(const onebit_allreduce_config_t& config) {
    const bool wanted = config.codec == ONEBIT_CODEC_POWERSGD;
    if (!wanted && (config.matrix_rank != 0 || config.shapes != nullptr || config.num_shapes != 0)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.%s is for ONEBIT_CODEC_POWERSGD: leave it at 0 with other codecs",
                             config.matrix_rank != 0    ? "matrix_rank"
                             : config.shapes != nullptr ? "shapes"
                                                        : "num_shapes");
    }
    if (!wanted) return {};
    if (config.matrix_rank > kMostRank) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "config.matrix_rank: %u is more than %zu",
                             config.matrix_rank, kMostRank);
    }
    if (config.shapes == nullptr || config.num_shapes == 0 || config.num_shapes > config.count) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "config.shapes: ONEBIT_CODEC_POWERSGD needs the rows and columns of each of the buffer's "
                             "matrices, from 1 to config.count of them; config.num_shapes is %llu",
                             static_cast<unsigned long long>(config.num_shapes));
    }
    std::uint64_t left = config.count;
    for (std::uint64_t i = 0; i < config.num_shapes; ++i) {
        const std::uint64_t rows = config.shapes[2 * i];
        const std::uint64_t columns = config.shapes[2 * i + 1];
        if (rows == 0 || columns == 0 || rows > left / columns) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                                 "config.shapes: matrix %llu, of %llu rows and %llu columns, %s",
                                 static_cast<unsigned long long>(i), static_cast<unsigned long long>(rows),
                                 static_cast<unsigned long long>(columns),
                                 rows == 0 || columns == 0 ? "is empty" : "ends behind the buffer");
        }
        left -= rows * columns;
    }
    if (left == 0) return {};
    return Status::error(
        ONEBIT_ERROR_INVALID_ARGUMENT, "config.shapes: the matrices have %llu elements, but config.count is %llu",
        static_cast<unsigned long long>(config.count - left), static_cast<unsigned long long>(config.count));
}

std::uint64_t hash_of_shapes(const onebit_allreduce_config_t& config) {
    const std::span<const std::uint64_t> shapes = shapes_of(config);
    return shapes.empty() ? 0 : hash_bytes(shapes.data(), shapes.size_bytes());
}

MatrixLayout matrices_of(const onebit_allreduce_config_t& config) {
    return {shapes_of(config), rank_of(config)};
}

Status check_factors(const onebit_allreduce_config_t& config) {
    const NamedValue of_others[] = {{"config.scale", static_cast<std::uint32_t>(config.scale)},
                                    {"config.group", static_cast<std::uint32_t>(config.group)},
                                    {"config.kept", config.kept},
                                    {"config.value_bits", config.value_bits},
                                    {"config.rounding", static_cast<std::uint32_t>(config.rounding)}};
    for (const NamedValue& member : of_others) {
        if (member.value == 0) continue;
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "%s is for other codecs: leave it at 0 with ONEBIT_CODEC_POWERSGD", member.name);
    }
    if (config.error_type != ONEBIT_FLOAT32) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED, "config.error_type: with ONEBIT_CODEC_POWERSGD ONEBIT_FLOAT32");
    }
    if (config.algorithm <= ONEBIT_ALGORITHM_FLAT) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.algorithm: ONEBIT_CODEC_POWERSGD has ONEBIT_ALGORITHM_DENSE and _FLAT, and AUTO, but "
                         "not %s",
                         algorithm_name(config.algorithm));
}

void choose_factors(const onebit_allreduce_config_t& config, Communicator& communicator, Plan* plan) {
    const KnownCosts& known = communicator.costs(config.memory, kTimedForFactors);
    const Costs costs = for_elements(known.costs(), bytes_of(config.datatype), communicator.groups());
    const auto dense_us = [](const Costs& of, std::size_t count) {
        return of.microseconds(ONEBIT_ALGORITHM_DENSE, count);
    };
    const double dense = dense_us(costs, config.count);
    const double us_per_element =
        kPassesUsPerElement + kUsPerElementAndDirection * static_cast<double>(rank_of(config));
    const double factors = dense_us(known.costs(), plan->matrices.left_count()) +
                           dense_us(known.costs(), plan->matrices.right_count()) +
                           static_cast<double>(config.count) * us_per_element;
    plan->algorithm = factors < dense ? ONEBIT_ALGORITHM_FLAT : ONEBIT_ALGORITHM_DENSE;
    char text[96];
    std::snprintf(text, sizeof(text), "%llu elements: dense %.3g us, flat %.3g us (%s)",
                  static_cast<unsigned long long>(config.count), dense, factors, known.source().c_str());
    plan->reason = text;
}

void take_factors(Plan* plan) {
    if (plan->algorithm == ONEBIT_ALGORITHM_DENSE) return;
    if (plan->algorithm != ONEBIT_ALGORITHM_FLAT) plan->reason = "flat, as all of POWERSGD; " + plan->reason;
    plan->algorithm = ONEBIT_ALGORITHM_FLAT;
    if (plan->matrices.compresses()) return;
    plan->algorithm = ONEBIT_ALGORITHM_DENSE;
    plan->reason = "no matrix has fewer factors than elements; " + plan->reason;
}

} // namespace onebit
