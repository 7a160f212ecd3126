// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.hpp"
#include "numeric/lanes.hpp"

namespace onebit {

/// One implementation of every kernel in kernels.def.
struct SignKernels {
    const char* name;
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) result(*kernel) parameters;
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
};

/// The readable scalar version.
const SignKernels& reference_sign_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const SignKernels* const> available_sign_kernels();

} // namespace onebit
