// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPU's memory without a GPU: the host's, at addresses that the host doesn't know; and streams, one for each thread,
// that copy as late as they may.

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

std::mutex device; // whoever looks at what follows has it
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

// Allocations lie one behind the other, and no address is used twice. The memory itself lies kReserved bytes further
// on.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kReserved = std::size_t{1} << 40;
std::size_t used = 0; // bytes of what is reserved

std::size_t pages_of(std::size_t bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}

std::byte* reserved() {
    static void* const begin = [] {
        void* const room = mmap(nullptr, 2 * kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) throw std::bad_alloc();
        return room;
    }();
    return static_cast<std::byte*>(begin);
}

} // namespace

namespace onebit_test {

namespace {

/// Makes this thread's copies up to one.
void copy_until(std::uint64_t number) {
    for (; copied < number; ++copied) {
        const Copy& next = pending.front();
        std::memcpy(on_device(static_cast<std::byte*>(next.to)), on_device(static_cast<const std::byte*>(next.from)),
                    next.bytes);
        pending.pop_front();
    }
}

std::uint64_t given() {
    return copied + pending.size();
}

} // namespace

std::uintptr_t on_device(std::uintptr_t address) {
    const bool is_there = address - reinterpret_cast<std::uintptr_t>(reserved()) < kReserved;
    return is_there ? address + kReserved : address;
}

void finish_copies() {
    copy_until(given());
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
    numbers[memory] = ++allocated;
    mprotect(onebit_test::on_device(static_cast<std::byte*>(memory)), bytes, PROT_READ | PROT_WRITE);
    return memory; // zeroed
}

void DeviceMemory::release(void* memory, std::size_t bytes) {
    if (!pending.empty()) (void)wait_for(stream_); // as a GPU's does
    const std::lock_guard lock(device);
    allocations.erase(memory);
    numbers.erase(memory);
    auto* const place = onebit_test::on_device(static_cast<std::byte*>(memory));
    mprotect(place, bytes, PROT_NONE);
    madvise(place, bytes, MADV_DONTNEED);
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
    (void)copy_later(to, from, bytes, stream_);
}

void DeviceMemory::fill_zero(void* memory, std::size_t bytes) {
    onebit_test::finish_copies();
    std::memset(onebit_test::on_device(static_cast<std::byte*>(memory)), 0, bytes);
}

Status copy_later(void* to, const void* from, std::size_t bytes, Stream /*stream*/) {
    if (bytes == 0) return {};
    pending.push_back({to, from, bytes});
    const auto pageable = [](const void* at) {
        const std::lock_guard lock(device);
        return !is_within(allocations, at) && !is_within(pinned, at);
    };
    if (pageable(to) || pageable(from)) onebit_test::finish_copies();
    return {};
}

Status wait_for(Stream /*stream*/) {
    onebit_test::finish_copies();
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
    onebit_test::copy_until(state / 4);
    return {};
}

} // namespace onebit::cuda
