// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/memory.hpp"

namespace onebit {
namespace {

class HostMemory final : public Memory {
  public:
    /// Large pieces ask for huge pages: a pass over a gigabyte in 4 KiB pages loses a tenth of the bandwidth to address
    /// translation.
    void* allocate(std::size_t bytes) override {
        constexpr std::size_t kHugePage = std::size_t{2} << 20;
        void* memory = nullptr;
        const bool large = bytes >= 2 * kHugePage;
        if (posix_memalign(&memory, large ? kHugePage : 64, bytes) != 0) throw std::bad_alloc();
        if (large) madvise(memory, bytes, MADV_HUGEPAGE);
        fill_zero(memory, bytes);
        return memory;
    }
    void release(void* memory, std::size_t /*bytes*/) override { std::free(memory); }
    void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void fill_zero(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
};

} // namespace

Memory& host_memory() {
    static HostMemory memory;
    return memory;
}

} // namespace onebit
