// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/config.hpp"

#include <cmath>
#include <cstdlib>

namespace onebit {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Parses a number in [least, most]; leaves *number alone where the variable is not set.
Status read_number(const char* name, double least, double most, double* number) {
    const std::string text = variable(name);
    if (text.empty()) return {};
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !std::isfinite(value) || value < least || value > most) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "environment: %s=%s is not a number from %g to %g", name,
                             text.c_str(), least, most);
    }
    *number = value;
    return {};
}

} // namespace

Status read_environment(Environment* environment) {
    environment->kernels = variable("ONEBIT_KERNELS");
    environment->algorithm = variable("ONEBIT_ALGORITHM");
    if (!environment->algorithm.empty() && environment->algorithm != "dense" && environment->algorithm != "flat") {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "environment: ONEBIT_ALGORITHM=%s is not dense or flat",
                             environment->algorithm.c_str());
    }
    double threads = environment->threads;
    double log = 0;
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_THREADS", 1, 1024, &threads));
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_TIMEOUT", 0, 1e9, &environment->timeout));
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_LOG", 0, 1, &log));
    environment->threads = static_cast<unsigned>(threads);
    environment->log = log > 0;
    return {};
}

} // namespace onebit
