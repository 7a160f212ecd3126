// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/status.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

namespace onebit {

struct Status::Told {
    onebit_status_t code;
    std::string message;
    std::atomic<unsigned> users = 1;
};

Status::Told* Status::told() const {
    return word_ % 2 == 0 ? reinterpret_cast<Told*>(word_) : nullptr;
}

onebit_status_t Status::code_of_word() const {
    const Told* const told = this->told();
    return told == nullptr ? static_cast<onebit_status_t>(word_ / 2) : told->code;
}

onebit_status_t told_status(std::uint32_t code) noexcept {
    return code <= ONEBIT_ERROR_CANCELLED ? static_cast<onebit_status_t>(code) : ONEBIT_ERROR_TRANSPORT;
}

void Status::share() const {
    if (Told* const told = this->told()) told->users.fetch_add(1, std::memory_order_relaxed);
}

void Status::release() {
    Told* const told = this->told();
    if (told != nullptr && told->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete told;
}

Status Status::with_message(onebit_status_t code, const char* format, std::va_list arguments) noexcept {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, arguments);
    Status status;
    try {
        status.word_ = reinterpret_cast<std::uintptr_t>(new Told{code, text});
    } catch (const std::bad_alloc&) { // without its message
        if (code != ONEBIT_SUCCESS) status.word_ = static_cast<std::uintptr_t>(code) * 2 + 1;
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
    if (const Told* const told = this->told()) return told->message;
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
