// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "support/failing_allocations.hpp"

#include <execinfo.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

extern "C" {
extern char __executable_start; // the linker's
int __real_posix_memalign(void** memory, std::size_t alignment, std::size_t bytes);
void* __real_mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __real_memfd_create(const char* name, unsigned flags);
int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t bytes);
void* __wrap_mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_memfd_create(const char* name, unsigned flags);
}

namespace {

constexpr int kFrames = 40;

// Of this thread; trivial, so that no access allocates.
thread_local bool armed = false;
thread_local bool all_behind_fail = false;
thread_local long left = 0;
thread_local int frames = 0; // of the allocation that failed
thread_local std::array<void*, kFrames> frame{};

bool must_fail() {
    if (!armed) return false;
    if (left > 0) --left;
    if (left > 0) return false;
    if (frames == 0) {
        armed = false; // backtrace may allocate
        frames = backtrace(frame.data(), kFrames);
        armed = all_behind_fail;
    }
    return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
    if (must_fail()) return nullptr;
    void* memory = nullptr;
    if (alignment <= alignof(std::max_align_t)) {
        memory = std::malloc(bytes == 0 ? 1 : bytes);
    } else if (__real_posix_memalign(&memory, alignment, bytes) != 0) {
        memory = nullptr;
    }
    return memory;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
    void* const memory = allocate(bytes, alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void release(void* memory) {
    std::free(memory);
}

} // namespace

namespace onebit_test {

FailingAllocation::FailingAllocation(long n, bool all_behind) {
    frames = 0;
    left = n;
    all_behind_fail = all_behind;
    armed = true;
}

FailingAllocation::~FailingAllocation() {
    armed = false;
}

bool FailingAllocation::happened() {
    return frames > 0;
}

std::string FailingAllocation::place() {
    std::string text;
    for (int f = 0; f < frames; ++f) {
        char item[32];
        const auto address = reinterpret_cast<std::uintptr_t>(frame[static_cast<std::size_t>(f)]);
        std::snprintf(item, sizeof(item), " 0x%zx",
                      static_cast<std::size_t>(address - reinterpret_cast<std::uintptr_t>(&__executable_start)) - 1);
        text += item;
    }
    return text;
}

Unarmed::Unarmed() : before_(std::exchange(armed, false)) {}

Unarmed::~Unarmed() {
    armed = before_;
}

} // namespace onebit_test

extern "C" int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
    return must_fail() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}

extern "C" void* __wrap_mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
    if (!must_fail()) return __real_mmap(address, bytes, protection, flags, file, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

extern "C" int __wrap_memfd_create(const char* name, unsigned flags) {
    if (!must_fail()) return __real_memfd_create(name, flags);
    errno = ENOMEM;
    return -1;
}

void* operator new(std::size_t bytes) {
    return allocate_or_throw(bytes, 0);
}
void* operator new[](std::size_t bytes) {
    return allocate_or_throw(bytes, 0);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes, 0);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes, 0);
}
void operator delete(void* memory) noexcept {
    release(memory);
}
void operator delete[](void* memory) noexcept {
    release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    release(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
    release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    release(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    release(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
    release(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
    release(memory);
}
