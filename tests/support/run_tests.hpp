// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

namespace onebit::test {

// Runs the executable's tests as the command line says; returns the exit status for main(). Catch2 itself is compiled
// only here, once for all executables.
int run_tests(int argc, char** argv);

} // namespace onebit::test
