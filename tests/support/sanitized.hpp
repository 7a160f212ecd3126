// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weak: what no sanitizer brings is null.
extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace onebit_test {

// Whether a sanitizer looks at the library, which takes time, memory, threads and stack of its own. Tests find out when
// they run, for not all are compiled with it.
inline bool is_sanitized() {
    return __asan_init != nullptr || __tsan_init != nullptr;
}

} // namespace onebit_test
