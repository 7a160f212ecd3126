// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/copy_bytes.hpp"
#include "core/memory.hpp"
#include "core/partition.hpp"

namespace onebit {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLarge = kHugePage;

/// The bytes mapped for a large piece. The rest behind its huge pages gets one, too, if it fills half of one: in pages
/// of 4 KiB, its first touch would take three times as long.
std::size_t mapped_size(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t rest = bytes % kHugePage;
    return bytes - rest + (rest < kHugePage / 2 ? ceil_divide(rest, page) * page : kHugePage);
}

/// Pages of its own for a large piece. They are huge, because a pass over a gigabyte in 4 KiB pages loses a tenth of
/// the bandwidth to address translation. They are zero already: creating a handle doesn't wait for them, and on a NUMA
/// machine they lie near the threads that use them first.
void* map_pages(std::size_t bytes) {
    const std::size_t more = 2 * kHugePage; // for the piece to begin with a huge page, and end with one
    if (bytes + more < bytes) throw std::bad_alloc();
    void* const mapped = mmap(nullptr, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(mapped) % kHugePage) % kHugePage;
    const std::size_t used = mapped_size(bytes);
    auto* const piece = static_cast<std::byte*>(mapped) + before;
    if (before > 0) munmap(mapped, before);
    munmap(piece + used, bytes + more - before - used);
    madvise(piece, used, MADV_HUGEPAGE);
    return piece;
}

class HostMemory final : public Memory { // NOLINT(cppcoreguidelines-virtual-class-destructor): it is final
  public:
    void* allocate(std::size_t bytes) override {
        if (bytes >= kLarge) return map_pages(bytes);
        void* memory = nullptr;
        if (posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
        fill_zero(memory, bytes);
        return memory;
    }
    void release(void* memory, std::size_t bytes) override {
        if (bytes >= kLarge) {
            munmap(memory, mapped_size(bytes));
        } else {
            std::free(memory);
        }
    }
    void copy(void* to, const void* from, std::size_t bytes) override { copy_bytes(to, from, bytes); }
    void fill_zero(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
};

} // namespace

Memory& host_memory() {
    static HostMemory memory;
    return memory;
}

} // namespace onebit
