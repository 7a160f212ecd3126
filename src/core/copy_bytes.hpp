// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>

namespace onebit {

/// memcpy that takes null pointers for zero bytes. The buffer of an empty message or of an empty vector is a null
/// pointer, which memcpy itself doesn't take.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

} // namespace onebit
