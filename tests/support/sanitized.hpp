// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onebit_test {

// Whether a sanitizer looks on, which takes time, memory, threads and stack of its own.
#if defined(ONEBIT_TEST_SANITIZED)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

} // namespace onebit_test
