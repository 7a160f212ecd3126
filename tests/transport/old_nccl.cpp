// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A library that says that it is NCCL, of some version, and has nothing else to say.

extern "C" [[gnu::visibility("default")]] int ncclGetVersion(int* version) {
    *version = ONEBIT_TEST_NCCL_VERSION;
    return 0;
}
