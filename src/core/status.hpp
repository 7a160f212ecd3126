// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstdarg>
#include <cstdint>
#include <string>
#include <utility>

namespace onebit {

/// What every fallible function inside the library returns: success, or a code and a message that names the culprit. It
/// is one word, because every stage of every call hands it on. A success is zero and costs nothing. A moved-from one is
/// a success. Nothing here throws: without memory the message is lost, not the code.
class [[nodiscard]] Status { // NOLINT(cppcoreguidelines-special-member-functions): one assignment both copies and moves
  public:
    Status() = default;
    Status(const Status& other) noexcept : word_(other.word_) {
        if (word_ != 0) share();
    }
    Status(Status&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
    Status& operator=(Status other) noexcept {
        std::swap(word_, other.word_);
        return *this;
    }
    ~Status() {
        if (word_ != 0) release();
    }

    /// An error with a printf-style message.
    [[gnu::format(printf, 2, 3)]] static Status error(onebit_status_t code, const char* format, ...) noexcept;

    /// A success that has a message.
    [[gnu::format(printf, 1, 2)]] static Status note(const char* format, ...) noexcept;

    bool ok() const { return word_ == 0 || code() == ONEBIT_SUCCESS; }
    onebit_status_t code() const { return word_ == 0 ? ONEBIT_SUCCESS : code_of_word(); }
    const std::string& message() const noexcept;
    bool has_message() const { return told() != nullptr; }

  private:
    struct Told; ///< a code and its message, shared by copies, which then need no memory
    [[gnu::format(printf, 2, 0)]] static Status with_message(onebit_status_t code, const char* format,
                                                             std::va_list arguments) noexcept;
    Told* told() const;
    onebit_status_t code_of_word() const;
    void share() const;
    void release();

    /// 0: success. Odd: a code without a message, twice the code and one. Else: where the Told is.
    std::uintptr_t word_ = 0;
};

/// The status that a peer's message names; TRANSPORT where there is no such status.
onebit_status_t told_status(std::uint32_t code) noexcept;

/// The Status for the exception in flight; to be called from a catch block.
Status status_of_current_exception() noexcept;

/// Runs `body`, which returns a Status, and turns an exception, such as a failed allocation, into one.
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
