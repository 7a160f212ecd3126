// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdarg>
#include <memory>
#include <string>
#include <utility>

namespace onebit {

/// What every fallible function inside the library returns: success, or a code and a message that names the culprit.
/// Success costs no allocation. Nothing here throws: where there is no memory for the message it is lost, not the code.
class [[nodiscard]] Status {
  public:
    Status() = default;

    /// An error with a printf-style message.
    [[gnu::format(printf, 2, 3)]] static Status error(onebit_status_t code, const char* format, ...) noexcept;

    /// A success that has something to say all the same.
    [[gnu::format(printf, 1, 2)]] static Status note(const char* format, ...) noexcept;

    bool ok() const { return code_ == ONEBIT_SUCCESS; }
    onebit_status_t code() const { return code_; }
    const std::string& message() const noexcept;
    bool has_message() const { return message_ != nullptr; }

  private:
    explicit Status(onebit_status_t code) : code_(code) {}
    [[gnu::format(printf, 2, 0)]] static Status with_message(onebit_status_t code, const char* format,
                                                             std::va_list arguments) noexcept;

    onebit_status_t code_ = ONEBIT_SUCCESS;
    std::shared_ptr<const std::string> message_; ///< shared, for copies must not need memory
};

/// The Status for the exception in flight; to be called from a catch block.
Status status_of_current_exception() noexcept;

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
