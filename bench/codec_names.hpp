// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The codecs' names on the command lines of the benchmarks and of onebit_tune.
#pragma once

#include <array>

namespace onebit::bench {

// Indexed by onebit_codec_t.
inline constexpr std::array kCodecNames = {"sign", "int8",    "int4", "fp4",   "bfloat16", "ternary",
                                           "topk", "float16", "int2", "means", "randomk",  "powersgd"};

} // namespace onebit::bench
