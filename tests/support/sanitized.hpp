// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weak: a symbol that no sanitizer provides is null.
extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace onebit_test {

// Whether a sanitizer checks the library, which takes time, memory, threads and stack of its own. Tests find out at run
// time, because not all are compiled with the sanitizer.
inline bool is_sanitized() {
    return __asan_init != nullptr || __tsan_init != nullptr;
}

} // namespace onebit_test
