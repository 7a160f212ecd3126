// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/hash.hpp"

#define XXH_INLINE_ALL // nothing of its library is needed
#include <xxhash.h>

namespace onebit {

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
    return XXH3_64bits(data, bytes);
}

} // namespace onebit
