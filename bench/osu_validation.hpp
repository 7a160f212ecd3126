// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What --validation checks after each message size.
#pragma once

#include <onebit/onebit.h>

#include "osu_operation.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// True on every rank if, over 20 calls that start from a zero error state,
//   1. every call's result has the same bits on every rank that has it,
//   2. nothing is lost: sum of the results + mean of the worker errors + server error == sum of the exact results,
//      element by element, up to float32 rounding, and
//   3. if results are rounded once, their sum differs from that of the exact ones by at most an error of `codec`.
// Error feedback promises the second [1-bit Adam, section 4]. It holds for the dense algorithm as well, whose errors
// stay zero. An all-gather averages nothing: instead of a mean it has the error of the rank whose shard it is.
// Collective. Leaves the error state changed.
bool validate(const Ranks& ranks, Operation& operation, onebit_codec_t codec, const float* input);

} // namespace onebit::bench
