// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A library that reports to be NCCL, of some version, and has no other function.

extern "C" [[gnu::visibility("default")]] int ncclGetVersion(int* version) {
    *version = ONEBIT_TEST_NCCL_VERSION;
    return 0;
}
