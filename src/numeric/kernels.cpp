// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/kernels.hpp"

#include "core/kernel_tables.hpp"

namespace onebit {
namespace {

const NumericKernels* find_kernels(std::string_view name) {
    return name.empty() ? available_numeric_kernels().front() : table_named(available_numeric_kernels(), name);
}

} // namespace

const NumericKernels& numeric_kernels(std::string_view name) {
    const NumericKernels* const found = find_kernels(name);
    return found != nullptr ? *found : reference_numeric_kernels();
}

Status check_kernels(const std::string& name) {
    if (find_kernels(name) != nullptr) return {};
    std::string names;
    for (const NumericKernels* kernels : available_numeric_kernels()) names += std::string(" ") + kernels->name;
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "ONEBIT_KERNELS=%s: this machine has%s", name.c_str(),
                         names.c_str());
}

} // namespace onebit
