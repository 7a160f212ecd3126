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

/// The emulated device's memory has two addresses. One is what the library and the tests know: nothing is behind it, so
/// that who touches it ends as on a machine with a GPU, by a segmentation fault, whatever the device is doing. The
/// other is known to what stands for the device alone. This is the other, of an address in the device's memory; of any
/// other address it is the same.
std::uintptr_t on_device(std::uintptr_t address);

template <typename T>
T* on_device(T* address) {
    return reinterpret_cast<T*>(on_device(reinterpret_cast<std::uintptr_t>(address)));
}

/// A kernel's arguments with all pointers in them as the device has them. Nothing else that is in them comes near the
/// device's addresses.
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

/// Makes the copies that this thread's stream was given: whatever the device does now comes behind them.
void finish_copies();

/// From now on this thread's GPU is one of so many on its machine; at first each thread has one of its own.
void take_gpu(unsigned number);

/// Whether all of it lies in the emulated device's memory.
bool is_on_device(const void* memory, std::size_t bytes);

// A program with several GPUs. Their numbers are as cudaSetDevice has them; 0 is current, and does, if nobody says
// else.

/// Makes it the one that is current in this thread, but where the library enters another.
void set_current_gpu(int number);
int current_gpu();
/// A stream of that GPU: a thread's streams are one as far as their order goes.
onebit::cuda::Stream stream_of_gpu(int number);
/// cudaStreamPerThread.
onebit::cuda::Stream stream_per_thread();
/// The GPUs that this thread has made contexts on, which a look at an address does already, by entering them or not.
const std::set<int>& gpus_used();
/// A GPU that the kernels aren't compiled for.
constexpr int kGpuWithoutCode = 99;

/// What this thread's streams are given from now on is captured; how much that was, and no more.
void begin_capture();
std::size_t end_capture();

/// Whether this thread's stream comes to an event before anybody looks: else never before the third look.
void make_stream_quick(bool quick);

/// How many copies this thread's stream has yet to make.
std::size_t copies_to_come();

/// What this thread's stream was given so far.
struct StreamWork {
    std::size_t copies = 0;
    std::size_t launches = 0;
};
StreamWork work_given();
/// By who emulates a launch.
void note_launch();

/// How often this thread's stream was waited for because memory that is copied was not pinned.
std::size_t pageable_copies();

} // namespace onebit_test
