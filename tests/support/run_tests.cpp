// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#define CATCH_CONFIG_RUNNER // version 2 then compiles itself here; version 3 is a library
#include "support/run_tests.hpp"

#include "support/catch2.hpp"

int onebit::test::run_tests(int argc, char** argv) {
    return Catch::Session().run(argc, argv);
}
