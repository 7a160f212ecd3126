// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Catch2's own main, for the tests that run in one process.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
