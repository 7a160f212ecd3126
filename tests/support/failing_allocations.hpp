// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Allocations that fail on purpose: operator new, and what the library calls besides (posix_memalign, mmap,
// memfd_create). An executable that has failing_allocations.cpp replaces the former; the others it gets by
// onebit_wrap_allocations in tests/CMakeLists.txt, from objects that are linked into it.
#pragma once

#include <string>

namespace onebit_test {

// While it lives, this thread's n-th allocation fails (the first is 1), and with `all_behind` every one behind it.
// Other threads' are left alone.
class FailingAllocation {
  public:
    explicit FailingAllocation(long n, bool all_behind = false);
    ~FailingAllocation();
    FailingAllocation(const FailingAllocation&) = delete;
    FailingAllocation& operator=(const FailingAllocation&) = delete;

    // Whether there were as many.
    static bool happened();
    // Who asked for the one that failed: the innermost functions of the library, as addresses for addr2line.
    static std::string place();
};

// Blocks from operator new that have not been freed, of all threads.
long live_blocks();

} // namespace onebit_test
