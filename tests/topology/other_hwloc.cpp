// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A library that claims to be some version of hwloc, and has no other function.

extern "C" [[gnu::visibility("default")]] unsigned hwloc_get_api_version() {
    return ONEBIT_TEST_HWLOC_VERSION;
}
