// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "c_api/guard.hpp"

namespace onebit {
namespace {

thread_local Status last_told;

} // namespace

onebit_status_t report(const Status& status) noexcept {
    if (status.ok() && !status.has_message()) return ONEBIT_SUCCESS;
    last_told = status;
    return status.code();
}

std::uintptr_t next_handle_number() {
    static std::atomic<std::uintptr_t> next{1};
    // Odd, so it equals no pointer to an object of ours or the caller's, even if someone passes such a pointer.
    return next.fetch_add(2);
}

} // namespace onebit

const char* onebit_last_error(void) noexcept {
    return onebit::last_told.message().c_str();
}

const char* onebit_status_string(onebit_status_t status) noexcept {
    switch (status) {
        case ONEBIT_SUCCESS:
            return "ONEBIT_SUCCESS";
        case ONEBIT_ERROR_INVALID_ARGUMENT:
            return "ONEBIT_ERROR_INVALID_ARGUMENT";
        case ONEBIT_ERROR_INVALID_HANDLE:
            return "ONEBIT_ERROR_INVALID_HANDLE";
        case ONEBIT_ERROR_MISMATCH:
            return "ONEBIT_ERROR_MISMATCH";
        case ONEBIT_ERROR_NONFINITE:
            return "ONEBIT_ERROR_NONFINITE";
        case ONEBIT_ERROR_BUSY:
            return "ONEBIT_ERROR_BUSY";
        case ONEBIT_ERROR_BAD_STATE:
            return "ONEBIT_ERROR_BAD_STATE";
        case ONEBIT_ERROR_IO:
            return "ONEBIT_ERROR_IO";
        case ONEBIT_ERROR_UNSUPPORTED:
            return "ONEBIT_ERROR_UNSUPPORTED";
        case ONEBIT_ERROR_OUT_OF_MEMORY:
            return "ONEBIT_ERROR_OUT_OF_MEMORY";
        case ONEBIT_ERROR_TRANSPORT:
            return "ONEBIT_ERROR_TRANSPORT";
        case ONEBIT_ERROR_TIMEOUT:
            return "ONEBIT_ERROR_TIMEOUT";
        case ONEBIT_ERROR_INTERNAL:
            return "ONEBIT_ERROR_INTERNAL";
        case ONEBIT_ERROR_CANCELLED:
            return "ONEBIT_ERROR_CANCELLED";
    }
    return "unknown status";
}

int onebit_version_number(void) noexcept {
    return ONEBIT_VERSION_NUMBER;
}

#define ONEBIT_TEXT_OF(x) #x
#define ONEBIT_TEXT(x) ONEBIT_TEXT_OF(x)

const char* onebit_version(void) noexcept {
    return ONEBIT_TEXT(ONEBIT_VERSION_MAJOR) "." ONEBIT_TEXT(ONEBIT_VERSION_MINOR) "." ONEBIT_TEXT(
        ONEBIT_VERSION_PATCH);
}
