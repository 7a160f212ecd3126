// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// For executables that test the inside of the library: they run in the library's floating-point environment.
#include "core/float_environment.hpp"

namespace {

[[maybe_unused]] const onebit::FloatEnvironment environment; // of the first thread; later threads inherit it

} // namespace
