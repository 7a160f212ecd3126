// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What --validation checks after each message size.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <functional>

#include "osu_support.hpp"

namespace onebit::bench {

// True on every rank if, over 20 calls that start from a zero error state,
//   1. every call's result has the same bits on every rank, and
//   2. nothing is lost: sum of the results + mean of the worker errors + server error == sum of the averaged inputs,
//      element by element, up to float32 rounding.
// The second is what error feedback promises [1-bit Adam, section 4]; it holds for the dense algorithm as well, whose
// errors stay zero. `run` is one call, from and to the host's memory. Collective. Leaves the error state changed.
bool validate_allreduce(const Ranks& ranks, onebit_allreduce_t allreduce,
                        const std::function<void(const float* input, float* output)>& run, const float* input,
                        std::size_t count);

} // namespace onebit::bench
