// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#define CATCH_CONFIG_RUNNER // version 2 then compiles itself here; version 3 is a library
#include "support/run_tests.hpp"

#include <malloc.h>

#include "support/catch2.hpp"

int onebit::test::run_tests(int argc, char** argv) {
    for (const int threshold : {M_MMAP_THRESHOLD, M_TRIM_THRESHOLD}) mallopt(threshold, 1 << 30); // large vectors stay
    return Catch::Session().run(argc, argv);
}
