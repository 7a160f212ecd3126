// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

#include <catch2/catch.hpp>

int onebit::test::run_tests(int argc, char** argv) {
    return Catch::Session().run(argc, argv);
}
