// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <type_traits>

#include "core/cuda/device.hpp"

namespace onebit_test {

/// The emulated device's memory has two addresses. The library and the tests know the first one. Nothing is behind it:
/// an access to it ends by a segmentation fault, as on a machine with a GPU, whatever the device is doing. Only the
/// code that emulates the device knows the second address. Returns the second address for a first one, and any other
/// address unchanged.
std::uintptr_t on_device(std::uintptr_t address);

template <typename T>
T* on_device(T* address) {
    return reinterpret_cast<T*>(on_device(reinterpret_cast<std::uintptr_t>(address)));
}

/// A kernel's arguments, all pointers in them translated to the device's own addresses. No other word in them is near
/// an address of the device.
template <typename Arguments>
Arguments arguments_on_device(const Arguments& arguments) {
    static_assert(std::is_trivially_copyable_v<Arguments>);
    Arguments translated;
    auto* const to = reinterpret_cast<std::byte*>(&translated);
    std::memcpy(to, &arguments, sizeof(Arguments));
    for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= sizeof(Arguments); at += sizeof(std::uintptr_t)) {
        std::uintptr_t word = 0;
        std::memcpy(&word, to + at, sizeof(word));
        word = on_device(word);
        std::memcpy(to + at, &word, sizeof(word));
    }
    return translated;
}

/// Makes the copies in this thread's stream: later work of the device comes after them.
void finish_copies();

/// From now on this thread uses the GPU of this number on its machine; at first each thread has its own machine.
void take_gpu(unsigned number);

/// Whether all `bytes` bytes lie in the emulated device's memory.
bool is_on_device(const void* memory, std::size_t bytes);

// A program with several GPUs. GPUs have the numbers of cudaSetDevice; GPU 0 is current by default.

/// Makes this GPU current in this thread, except where the library enters another.
void set_current_gpu(int number);
int current_gpu();
/// A stream of that GPU. All streams of a thread share one order.
onebit::cuda::Stream stream_of_gpu(int number);
/// cudaStreamPerThread.
onebit::cuda::Stream stream_per_thread();
/// The GPUs on which this thread has made contexts. Entering a GPU makes one, and so does a query of an address.
const std::set<int>& gpus_used();
/// A GPU that the kernels aren't compiled for.
constexpr int kGpuWithoutCode = 99;

/// Captures the work given to this thread's streams from now on. end_capture() returns only how much there was.
void begin_capture();
std::size_t end_capture();

/// Whether this thread's stream reaches an event before the first query; otherwise only at the third query.
void make_stream_quick(bool quick);

/// How many copies this thread's stream has yet to make.
std::size_t copies_to_come();

/// The work given to this thread's stream up to now.
struct StreamWork {
    std::size_t copies = 0;
    std::size_t launches = 0;
};
StreamWork work_given();
/// Called by the code that emulates a launch.
void note_launch();

/// How often this thread's stream was waited for because the copied memory was not pinned.
std::size_t pageable_copies();

} // namespace onebit_test
