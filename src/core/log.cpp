// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <memory>

namespace onebit {
namespace {

/// What a program has registered. A replaced one stays, because another thread may be about to call it. So a line takes
/// no lock, which a forked child could find held for ever.
struct Callback {
    onebit_log_fn function = nullptr;
    void* context = nullptr;
    const Callback* older = nullptr;
};

std::atomic<const Callback*> newest = nullptr; ///< first of all that were ever set
std::atomic<const Callback*> current = nullptr;

const Callback* find(onebit_log_fn function, void* context) {
    const Callback* callback = newest;
    while (callback != nullptr && (callback->function != function || callback->context != context)) {
        callback = callback->older;
    }
    return callback;
}

} // namespace

void set_log_callback(onebit_log_fn function, void* context) {
    const Callback* callback = function == nullptr ? nullptr : find(function, context);
    if (function != nullptr && callback == nullptr) {
        auto made = std::make_unique<Callback>(Callback{function, context, newest});
        while (!newest.compare_exchange_weak(made->older, made.get())) {
        }
        callback = made.release();
    }
    current = callback;
}

void Log::write(onebit_log_level_t level, const char* format, ...) const {
    const Callback* const callback = current;
    if (!speaks_ || (callback == nullptr && !to_stderr_)) return;
    std::array<char, 2048> text{};
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text.data(), text.size(), format, arguments);
    va_end(arguments);
    if (callback == nullptr) {
        std::fprintf(stderr, "onebit: %s\n", text.data());
    } else {
        callback->function(callback->context, level, text.data());
    }
}

} // namespace onebit
