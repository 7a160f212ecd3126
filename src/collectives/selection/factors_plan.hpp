// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdint>

#include "collectives/communicator/communicator.hpp"
#include "collectives/selection/plan.hpp"
#include "core/status.hpp"

namespace onebit {

// What a plan says about ONEBIT_CODEC_POWERSGD, which averages factors of matrices and has no messages.

/// The codec whose costs POWERSGD uses: only those of exact averages, which are all that POWERSGD consists of.
inline constexpr onebit_codec_t kTimedForFactors = ONEBIT_CODEC_SIGN;

/// INVALID_ARGUMENT unless the matrices make up the buffer, where there must be matrices. Local.
Status check_shapes(const onebit_allreduce_config_t& config);
/// To be compared across ranks; for a config that check_shapes has accepted.
std::uint64_t hash_of_shapes(const onebit_allreduce_config_t& config);
/// UNSUPPORTED or INVALID_ARGUMENT where the settings aren't those of an allreduce of matrices.
Status check_factors(const onebit_allreduce_config_t& config);
/// How the buffer is cut into matrices.
MatrixLayout matrices_of(const onebit_allreduce_config_t& config);

/// What AUTO becomes: two exact averages of few numbers and three passes over the values, or one average of all values.
void choose_factors(const onebit_allreduce_config_t& config, Communicator& communicator, Plan* plan);
/// Factors are averaged by FLAT, whatever compressed form the environment wants.
void take_factors(Plan* plan);

} // namespace onebit
