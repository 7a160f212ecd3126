// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A library that says that it is hwloc, of some version, and has nothing else to say.

extern "C" [[gnu::visibility("default")]] unsigned hwloc_get_api_version() {
    return ONEBIT_TEST_HWLOC_VERSION;
}
