// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPU's memory without a GPU: the host's, that the host may not touch; and streams, one for each thread, that copy as
// late as they may.

#include "support/emulated_device.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "core/cuda/device.hpp"

namespace {

std::recursive_mutex device; // one thread at a time is on it
int depth = 0;
std::map<void*, std::size_t> allocations;
std::map<void*, std::size_t> pinned;
std::map<void*, std::uint64_t> numbers; // of the allocations
std::uint64_t allocated = 0;            // so many ever

bool is_within(const std::map<void*, std::size_t>& memories, const void* place) {
    const auto next = memories.upper_bound(const_cast<void*>(place));
    if (next == memories.begin()) return false;
    const auto& [memory, bytes] = *std::prev(next);
    return place < static_cast<const std::byte*>(memory) + bytes;
}

struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
};
thread_local std::deque<Copy> pending; // of this thread's stream
thread_local std::uint64_t copied = 0; // so many before them

// Allocations lie one behind the other, so that few calls open and close all of them, and no address is used twice.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kReserved = std::size_t{1} << 40;
std::size_t used = 0; // bytes of what is reserved

std::size_t pages_of(std::size_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

/// In huge pages where there are any: opening and closing takes a time for each page.
std::byte* reserved() {
    static void* const begin = [] {
        void* const room = mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room != MAP_FAILED) madvise(room, kReserved, MADV_HUGEPAGE);
        return room;
    }();
    return static_cast<std::byte*>(begin);
}

void protect(int protection) {
    for (auto next = allocations.begin(); next != allocations.end();) {
        auto* const begin = static_cast<std::byte*>(next->first);
        std::byte* end = begin;
        for (; next != allocations.end() && next->first == end; ++next) end += pages_of(next->second);
        mprotect(begin, static_cast<std::size_t>(end - begin), protection);
    }
}

} // namespace

namespace onebit_test {

namespace {

/// Makes this thread's copies up to one.
void copy_until(std::uint64_t number) {
    for (; copied < number; ++copied) {
        std::memcpy(pending.front().to, pending.front().from, pending.front().bytes);
        pending.pop_front();
    }
}

std::uint64_t given() {
    return copied + pending.size();
}

} // namespace

OnDevice::OnDevice() {
    device.lock();
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
    copy_until(given()); // what is done on the device is behind them
}

OnDevice::~OnDevice() {
    if (--depth == 0) protect(PROT_NONE);
    device.unlock();
}

namespace {

unsigned next_gpu() {
    static std::atomic<unsigned> next = 0;
    return next++;
}
thread_local unsigned gpu = next_gpu();

} // namespace

void take_gpu(unsigned number) {
    gpu = number;
}

bool is_on_device(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(device);
    return is_within(allocations, memory) &&
           (bytes == 0 || is_within(allocations, static_cast<const std::byte*>(memory) + bytes - 1));
}

} // namespace onebit_test

namespace onebit::cuda {

// ---- one GPU, number 0 ----

Status device_of(Stream /*stream*/, int* device) {
    *device = 0;
    return {};
}

Status bus_id_of(int /*device*/, std::string* bus_id) {
    *bus_id = "emulated:" + std::to_string(onebit_test::gpu);
    return {};
}

Device::~Device() = default;

Status Device::open() {
    context_ = this;
    return {};
}

void Device::enter() const {}

void Device::leave() const {}

Status place_of(const void* address, Place* place) {
    const std::lock_guard lock(device);
    *place = is_within(allocations, address) ? Place{Place::kDevice, 0} : Place{};
    return {};
}

bool is_loaded() {
    return true;
}

std::uint64_t allocation_of(const void* address) {
    const std::lock_guard lock(device);
    if (!is_within(allocations, address)) return 0;
    return std::prev(numbers.upper_bound(const_cast<void*>(address)))->second;
}

// ---- memory ----

void* DeviceMemory::allocate(std::size_t bytes) {
    const std::lock_guard lock(device);
    if (reserved() == MAP_FAILED || pages_of(bytes) > kReserved - used) throw std::bad_alloc();
    void* const memory = reserved() + used;
    used += pages_of(bytes);
    allocations[memory] = bytes;
    if (depth > 0) mprotect(memory, bytes, PROT_READ | PROT_WRITE);
    numbers[memory] = ++allocated;
    return memory; // zeroed
}

void DeviceMemory::release(void* memory, std::size_t bytes) {
    if (!pending.empty()) (void)wait_for(stream_); // as a GPU's does
    const std::lock_guard lock(device);
    allocations.erase(memory);
    numbers.erase(memory);
    mprotect(memory, bytes, PROT_NONE);
    madvise(memory, bytes, MADV_DONTNEED);
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
    (void)copy_later(to, from, bytes, stream_);
}

void DeviceMemory::fill_zero(void* memory, std::size_t bytes) {
    const onebit_test::OnDevice on_device;
    std::memset(memory, 0, bytes);
}

Status copy_later(void* to, const void* from, std::size_t bytes, Stream /*stream*/) {
    if (bytes == 0) return {};
    {
        const std::lock_guard lock(device);
        const auto pageable = [](const void* at) { return !is_within(allocations, at) && !is_within(pinned, at); };
        if (!pageable(to) && !pageable(from)) {
            pending.push_back({to, from, bytes});
            return {};
        }
    }
    const onebit_test::OnDevice on_device;
    std::memcpy(to, from, bytes);
    return {};
}

Status wait_for(Stream /*stream*/) {
    const onebit_test::OnDevice on_device;
    return {};
}

// ---- pinned memory ----

namespace {

class PinnedMemory final : public Memory {
  public:
    void* allocate(std::size_t bytes) override {
        void* const memory = host_memory().allocate(bytes);
        const std::lock_guard lock(device);
        pinned[memory] = bytes;
        return memory;
    }
    void release(void* memory, std::size_t bytes) override {
        if (!pending.empty()) (void)wait_for(nullptr);
        {
            const std::lock_guard lock(device);
            pinned.erase(memory);
        }
        host_memory().release(memory, bytes);
    }
    void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
    void fill_zero(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
};

} // namespace

Memory& pinned_memory() {
    static PinnedMemory memory;
    return memory;
}

// ---- events: instead of a pointer, four times the number of copies that are before one, and how often it said no ----

constexpr std::uintptr_t kTimesNo = 2;

Event::~Event() = default;

Status Event::record(Stream /*stream*/) {
    event_ = reinterpret_cast<CUevent_st*>(onebit_test::given() * 4);
    return {};
}

Status Event::test(bool* reached) const {
    const auto state = reinterpret_cast<std::uintptr_t>(event_);
    *reached = state % 4 == kTimesNo;
    if (!*reached) {
        const_cast<Event*>(this)->event_ = reinterpret_cast<CUevent_st*>(state + 1);
        return {};
    }
    if (copied >= state / 4) return {};
    const std::lock_guard lock(device);
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
    onebit_test::copy_until(state / 4);
    if (--depth == 0) protect(PROT_NONE);
    return {};
}

} // namespace onebit::cuda
