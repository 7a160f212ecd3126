// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Machines without hwloc, or with another hwloc. tests/c_api/check_library.py tests that libonebit starts there.

#include "topology/hwloc_calls.hpp"

#include "support/catch2.hpp"
#include "topology/machine.hpp"

namespace onebit {
namespace {

TEST_CASE("hwloc that is missing, of another version or poor is named", "[topology][bad]") {
    HwlocCalls calls;
    const Status missing = load_hwloc("libhwloc-of-nowhere.so.15", &calls);
    CHECK(missing.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(missing.message(), ContainsSubstring("hwloc can't be loaded: libhwloc-of-nowhere.so.15: cannot open"));
    const Status newer = load_hwloc(ONEBIT_TEST_NEWER_HWLOC, &calls);
    CHECK(newer.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(newer.message(), ContainsSubstring("is of hwloc 3; hwloc 2 wanted"));
    const Status poor = load_hwloc(ONEBIT_TEST_POOR_HWLOC, &calls);
    CHECK(poor.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(poor.message(), ContainsSubstring("has no hwloc_topology_init"));
    CHECK(calls.get_api_version == nullptr);
}

TEST_CASE("hwloc is loaded once", "[topology]") {
    const HwlocCalls* first = nullptr;
    const HwlocCalls* second = nullptr;
    CHECK(find_hwloc(&first).code() == find_hwloc(&second).code()); // there or not
    CHECK(first == second);
}

// The dynamic linker must find another hwloc first: CMakeLists.txt has this test.
TEST_CASE("a machine whose hwloc is of no use is unknown", "[.][no-hwloc]") {
    Machine machine;
    machine.host = "as before";
    const Status status = read_machine(nullptr, &machine);
    CHECK(status.code() == ONEBIT_ERROR_UNSUPPORTED);
    CHECK_THAT(status.message(), ContainsSubstring("libhwloc.so.15 is of hwloc 3"));
    CHECK(machine.host == "as before");
}

} // namespace
} // namespace onebit
