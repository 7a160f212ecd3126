// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#pragma once

namespace onebit::test {

// Runs the executable's tests as the command line says; what main() returns. Catch2 itself is compiled here alone, once
// for all executables.
int run_tests(int argc, char** argv);

} // namespace onebit::test
