// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Catch2, of version 2 (Debian 12) or 3 (Debian 13), by the names of version 3.

#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

using Catch::Approx; // version 2 says so itself
#else
#include <catch2/catch.hpp>

namespace Catch::Matchers {

inline auto ContainsSubstring(const std::string& part) {
    return Contains(part);
}

} // namespace Catch::Matchers
#endif

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
