// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A GPU's memory without a GPU: host memory, at addresses where the host can't reach it; and streams, one for each
// thread, that copy as late as they may.

#include "support/emulated_device.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "core/cuda/device.hpp"

namespace {

std::mutex device; // guards the following variables
std::map<void*, std::size_t> allocations;
std::map<void*, std::size_t> pinned;
struct Known {
    std::uint64_t number;
    int gpu;
};
std::map<void*, Known> known; // of the allocations
std::uint64_t allocated = 0;  // how many in all, freed ones included

bool is_within(const std::map<void*, std::size_t>& memories, const void* place) {
    const auto next = memories.upper_bound(const_cast<void*>(place));
    if (next == memories.begin()) return false;
    const auto& [memory, bytes] = *std::prev(next);
    return place < static_cast<const std::byte*>(memory) + bytes;
}

struct Copy {
    void* to;
    std::size_t to_pitch;
    const void* from;
    std::size_t from_pitch;
    std::size_t bytes;
    std::size_t rows;
};
thread_local std::deque<Copy> pending; // of this thread's stream
thread_local std::uint64_t copied = 0; // how many copies were made before them
thread_local std::size_t copied_from_pageable = 0;
thread_local onebit_test::StreamWork work;
thread_local bool quick_stream = false;

thread_local int chosen_gpu = 0;
thread_local std::vector<int> entered_gpus; // the last one is current
thread_local std::set<int> used_gpus;

thread_local bool capturing = false;
thread_local std::size_t captured = 0;

/// Called when a stream gets work, or is queried.
void note_work() {
    used_gpus.insert(onebit_test::current_gpu());
    captured += capturing ? 1 : 0;
}

constexpr std::intptr_t kFirstStream = 16; // of GPU 0; CUDA's own special ones come before

// Allocations lie one after another, and no address is used twice. The memory itself lies kReserved bytes after the
// address.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kReserved = std::size_t{1} << 40;
std::size_t used = 0; // bytes of the reserved range

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

/// Makes this thread's copies up to copy `number`.
void copy_until(std::uint64_t number) {
    for (; copied < number; ++copied) {
        const Copy& next = pending.front();
        auto* const to = on_device(static_cast<std::byte*>(next.to));
        const auto* const from = on_device(static_cast<const std::byte*>(next.from));
        for (std::size_t row = 0; row < next.rows; ++row) {
            std::memcpy(to + row * next.to_pitch, from + row * next.from_pitch, next.bytes);
        }
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
    note_work();
    copy_until(given());
}

void set_current_gpu(int number) {
    chosen_gpu = number;
}

int current_gpu() {
    return entered_gpus.empty() ? chosen_gpu : entered_gpus.back();
}

onebit::cuda::Stream stream_per_thread() {
    return reinterpret_cast<onebit::cuda::Stream>(std::intptr_t{2}); // as CUDA has it
}

onebit::cuda::Stream stream_of_gpu(int number) {
    return reinterpret_cast<onebit::cuda::Stream>(std::intptr_t{number} + kFirstStream);
}

const std::set<int>& gpus_used() {
    return used_gpus;
}

void begin_capture() {
    capturing = true;
    captured = 0;
}

std::size_t end_capture() {
    capturing = false;
    return captured;
}

void make_stream_quick(bool quick) {
    quick_stream = quick;
}

std::size_t copies_to_come() {
    return pending.size();
}

StreamWork work_given() {
    return work;
}

void note_launch() {
    ++work.launches;
}

std::size_t pageable_copies() {
    return copied_from_pageable;
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

// ---- GPUs ----

Status device_of(Stream stream, int* device) {
    *device = stream == nullptr ? onebit_test::current_gpu()
                                : static_cast<int>(reinterpret_cast<std::intptr_t>(stream) - kFirstStream);
    return {};
}

Status check_same_in_all_threads(Stream stream) {
    if (stream != onebit_test::stream_per_thread()) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "stream: another one in each thread");
}

Status check_not_captured(Stream /*stream*/) {
    if (!capturing) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "config.stream is being captured");
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

void Device::enter() const {
    entered_gpus.push_back(number_);
}

void Device::leave() const {
    entered_gpus.pop_back();
}

namespace {

/// The allocation that an address lies in, or NULL. The caller holds the lock.
const Known* find_known(const void* address) {
    if (!is_within(allocations, address)) return nullptr;
    return &std::prev(known.upper_bound(const_cast<void*>(address)))->second;
}

} // namespace

Status place_of(const void* address, Place* place) {
    used_gpus.insert(onebit_test::current_gpu());
    const std::lock_guard lock(device);
    const Known* const found = find_known(address);
    *place = found != nullptr ? Place{Place::kDevice, found->gpu} : Place{};
    return {};
}

bool is_on_device(const void* address) {
    const std::lock_guard lock(device);
    return find_known(address) != nullptr;
}

bool is_loaded() {
    return true;
}

std::uint64_t allocation_of(const void* address) {
    const std::lock_guard lock(device);
    const Known* const found = find_known(address);
    return found != nullptr ? found->number : 0;
}

// ---- memory ----

void* DeviceMemory::allocate(std::size_t bytes) {
    note_work();
    const std::lock_guard lock(device);
    if (reserved() == MAP_FAILED || pages_of(bytes) > kReserved - used) throw std::bad_alloc();
    void* const memory = reserved() + used;
    used += pages_of(bytes);
    allocations[memory] = bytes;
    known[memory] = {++allocated, onebit_test::current_gpu()};
    mprotect(onebit_test::on_device(static_cast<std::byte*>(memory)), bytes, PROT_READ | PROT_WRITE);
    return memory; // zeroed
}

void DeviceMemory::release(void* memory, std::size_t bytes) {
    if (!pending.empty()) (void)wait_for(stream_); // as a GPU's free does
    const std::lock_guard lock(device);
    allocations.erase(memory);
    known.erase(memory);
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

Status copy_later(void* to, const void* from, std::size_t bytes, Stream stream) {
    return copy_rows_later(to, bytes, from, bytes, bytes, 1, stream);
}

Status copy_rows_later(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
                       std::size_t rows, Stream /*stream*/) {
    if (bytes == 0 || rows == 0) return {};
    if (rows > 1 && (bytes > to_pitch || bytes > from_pitch)) { // as cudaMemcpy2DAsync
        return Status::error(ONEBIT_ERROR_INTERNAL, "emulated copy: %zu bytes of a pitch", bytes);
    }
    note_work();
    ++work.copies;
    pending.push_back({to, to_pitch, from, from_pitch, bytes, rows});
    const auto pageable = [](const void* at) {
        const std::lock_guard lock(device);
        return !is_within(allocations, at) && !is_within(pinned, at);
    };
    if (pageable(to) || pageable(from)) {
        ++copied_from_pageable;
        onebit_test::finish_copies();
    }
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

Status Event::record(Stream stream) {
    note_work();
    int gpu = 0;
    ONEBIT_RETURN_IF_ERROR(device_of(stream, &gpu));
    if (gpu != onebit_test::current_gpu()) { // the GPU that the event belongs to
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "emulated event: GPU %d is current, the stream is of %d",
                             onebit_test::current_gpu(), gpu);
    }
    event_ = reinterpret_cast<CUevent_st*>(onebit_test::given() * 4);
    return {};
}

Status Event::test(bool* reached) const {
    note_work();
    const auto state = reinterpret_cast<std::uintptr_t>(event_);
    *reached = quick_stream || state % 4 == kTimesNo;
    if (!*reached) {
        const_cast<Event*>(this)->event_ = reinterpret_cast<CUevent_st*>(state + 1);
        return {};
    }
    onebit_test::copy_until(state / 4);
    return {};
}

} // namespace onebit::cuda
