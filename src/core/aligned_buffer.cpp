// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/aligned_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace onebit {

void* allocate_memory(std::size_t bytes) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    void* memory = nullptr;
    const bool large = bytes >= 2 * kHugePage;
    if (posix_memalign(&memory, large ? kHugePage : 64, bytes) != 0) throw std::bad_alloc();
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 0, bytes);
    return memory;
}

void free_memory(void* memory, std::size_t /*bytes*/) {
    std::free(memory);
}

} // namespace onebit
