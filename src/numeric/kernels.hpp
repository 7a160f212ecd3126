// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/status.hpp"
#include "core/stores.hpp"

namespace onebit {

/// One implementation of every kernel in kernels.def.
struct NumericKernels {
    const char* name; ///< of its instruction set; "reference": the scalar twins
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) result(*kernel) parameters;
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
};

/// The readable scalar version.
const NumericKernels& reference_numeric_kernels();

/// All that run on this machine, best first, the reference last. Other lists of kernels have the same names.
std::span<const NumericKernels* const> available_numeric_kernels();

/// The kernels of this name; "": the best. The name must be one that check_kernels accepts.
const NumericKernels& numeric_kernels(std::string_view name);

/// INVALID_ARGUMENT, naming the existing ones, unless kernels of this name run on this machine ("" always does).
Status check_kernels(const std::string& name);

} // namespace onebit
