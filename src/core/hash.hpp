// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace onebit {

/// XXH3, 64 bits: to tell whether two ranks, or a file and its past, hold the same bytes. Not for secrets.
std::uint64_t hash_bytes(const void* data, std::size_t bytes);

} // namespace onebit
