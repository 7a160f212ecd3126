// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

namespace onebit {

Status Status::error(onebit_status_t code, const char* format, ...) {
    char text[512];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return {code, text};
}

Status Status::note(const char* format, ...) {
    char text[512];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return {ONEBIT_SUCCESS, text};
}

Status status_of_current_exception() {
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
