// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <string>
#include <utility>

namespace onebit {

/// What every fallible function inside the library returns: success, or a code and a message that names the culprit.
/// Success costs no allocation.
class [[nodiscard]] Status {
  public:
    Status() = default;

    /// An error with a printf-style message.
    [[gnu::format(printf, 2, 3)]] static Status error(onebit_status_t code, const char* format, ...);

    /// A success that has something to say all the same.
    [[gnu::format(printf, 1, 2)]] static Status note(const char* format, ...);

    bool ok() const { return code_ == ONEBIT_SUCCESS; }
    onebit_status_t code() const { return code_; }
    const std::string& message() const { return message_; }

  private:
    Status(onebit_status_t code, std::string message) : code_(code), message_(std::move(message)) {}

    onebit_status_t code_ = ONEBIT_SUCCESS;
    std::string message_;
};

/// The Status for the exception in flight; to be called from a catch block.
Status status_of_current_exception();

/// Runs `body`, which returns a Status, and turns an exception, an allocation that failed say, into one.
template <typename Body>
Status catch_exceptions(Body&& body) {
    try {
        return body();
    } catch (...) {
        return status_of_current_exception();
    }
}

} // namespace onebit

/// Leaves the enclosing function with the status of `expression` unless it is a success.
#define ONEBIT_RETURN_IF_ERROR(expression)                             \
    do {                                                               \
        ::onebit::Status status_of_expression_ = (expression);         \
        if (!status_of_expression_.ok()) return status_of_expression_; \
    } while (false)
