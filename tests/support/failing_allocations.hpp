// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Allocations that fail on purpose: operator new, and the library's other allocating calls (posix_memalign, mmap,
// memfd_create). failing_allocations.cpp replaces operator new in the executable that it is linked into. The other
// calls are replaced by the linker's --wrap (tests/CMakeLists.txt), in objects that are linked into the same
// executable.
#pragma once

#include <string>

namespace onebit_test {

// During its lifetime this thread's n-th allocation fails (the first is 1), and with `all_behind` every later one too.
// Other threads' allocations are left alone.
class FailingAllocation {
  public:
    explicit FailingAllocation(long n, bool all_behind = false);
    ~FailingAllocation();
    FailingAllocation(const FailingAllocation&) = delete;
    FailingAllocation& operator=(const FailingAllocation&) = delete;

    // Whether there were at least n allocations.
    static bool happened();
    // The origin of the failed allocation: the innermost functions of the library, as addresses for addr2line.
    static std::string place();
};

// During its lifetime this thread's allocations neither fail nor count: for a test's own within a call.
class Unarmed {
  public:
    Unarmed();
    ~Unarmed();
    Unarmed(const Unarmed&) = delete;
    Unarmed& operator=(const Unarmed&) = delete;

  private:
    bool before_;
};

} // namespace onebit_test
