// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPU's memory without a GPU: the host's, that the host may not touch.

#include "support/emulated_device.hpp"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "core/cuda/device.hpp"

namespace {

std::recursive_mutex device; // one thread at a time is on it
int depth = 0;
std::map<void*, std::size_t> allocations;

void protect(int protection) {
    for (const auto& [memory, bytes] : allocations) mprotect(memory, bytes, protection);
}

} // namespace

namespace onebit_test {

OnDevice::OnDevice() {
    device.lock();
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

OnDevice::~OnDevice() {
    if (--depth == 0) protect(PROT_NONE);
    device.unlock();
}

} // namespace onebit_test

namespace onebit::cuda {

void* DeviceMemory::allocate(std::size_t bytes) {
    const std::lock_guard lock(device);
    void* const memory =
        mmap(nullptr, bytes, depth > 0 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    allocations[memory] = bytes;
    return memory; // zeroed
}

void DeviceMemory::free(void* memory, std::size_t bytes) {
    const std::lock_guard lock(device);
    allocations.erase(memory);
    munmap(memory, bytes);
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
    (void)copy_later(to, from, bytes, stream_);
}

void DeviceMemory::fill_zero(void* memory, std::size_t bytes) {
    const onebit_test::OnDevice on_device;
    std::memset(memory, 0, bytes);
}

Status copy_later(void* to, const void* from, std::size_t bytes, Stream /*stream*/) {
    const onebit_test::OnDevice on_device;
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
}

Status wait_for(Stream /*stream*/) {
    return {};
}

Memory& pinned_memory() {
    return host_memory();
}

// An event counts how often it was asked, instead of pointing to anything: the first answer is no.
Event::~Event() = default;

Status Event::record(Stream /*stream*/) {
    event_ = nullptr;
    return {};
}

Status Event::test(bool* reached) const {
    *reached = event_ != nullptr;
    const_cast<Event*>(this)->event_ = reinterpret_cast<CUevent_st*>(1);
    return {};
}

} // namespace onebit::cuda
