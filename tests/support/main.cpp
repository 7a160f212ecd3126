// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// For the tests that run in one process.
#include "support/run_tests.hpp"

int main(int argc, char** argv) {
    return onebit::test::run_tests(argc, argv);
}
