// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.hpp"

namespace onebit {

/// One implementation of every kernel in kernels.def.
struct SignKernels {
    const char* name;
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) result(*kernel) parameters;
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
};

/// Lanes of a reproducible sum: element i of a block is added in lane i mod 32, on every ISA and device.
inline constexpr std::size_t kLanes = 32;

/// The readable scalar version.
const SignKernels& reference_sign_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const SignKernels* const> available_sign_kernels();

} // namespace onebit
