// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/config.hpp"

#include <charconv>
#include <cstdlib>
#include <system_error>

namespace onebit {
namespace {

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Parses a number in [least, most]; leaves *number alone where the variable is not set.
template <typename Number>
Status read_number(const char* name, Number least, Number most, Number* number) {
    const std::string text = variable(name);
    if (text.empty()) return {};
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Written so that a NaN fails too.
    if (error != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "environment: %s=%s is not a number from %g to %g", name,
                             text.c_str(), static_cast<double>(least), static_cast<double>(most));
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
    unsigned log = 0;
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_THREADS", 1U, 1024U, &environment->threads));
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_TIMEOUT", 0.0, 1e9, &environment->timeout));
    ONEBIT_RETURN_IF_ERROR(read_number("ONEBIT_LOG", 0U, 1U, &log));
    environment->log = log > 0;
    return {};
}

} // namespace onebit
