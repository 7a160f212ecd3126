// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

namespace onebit {

Status Status::with_message(onebit_status_t code, const char* format, std::va_list arguments) noexcept {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    Status status(code);
    try {
        status.message_ = std::make_shared<const std::string>(text);
    } catch (const std::bad_alloc&) { // without its message
    }
    return status;
}

Status Status::error(onebit_status_t code, const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    Status status = with_message(code, format, arguments);
    va_end(arguments);
    return status;
}

Status Status::note(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    Status status = with_message(ONEBIT_SUCCESS, format, arguments);
    va_end(arguments);
    return status;
}

const std::string& Status::message() const noexcept {
    static const std::string kNone;
    static const std::string kLost = "out of memory"; // short enough to need none
    if (message_ != nullptr) return *message_;
    return ok() ? kNone : kLost;
}

Status status_of_current_exception() noexcept {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return Status::error(ONEBIT_ERROR_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& e) {
        return Status::error(ONEBIT_ERROR_INTERNAL, "unexpected exception: %s", e.what());
    } catch (...) {
        return Status::error(ONEBIT_ERROR_INTERNAL, "unexpected exception of unknown type");
    }
}

} // namespace onebit
