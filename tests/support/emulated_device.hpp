// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onebit_test {

/// While one exists, this thread is on the emulated device: its memory can be touched. Else who touches it ends as on a
/// machine with a GPU: by a segmentation fault.
class OnDevice {
  public:
    OnDevice();
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
};

/// From now on this thread's GPU is one of so many on its machine; at first each thread has one of its own.
void take_gpu(unsigned number);

/// Whether all of it lies in the emulated device's memory.
bool is_on_device(const void* memory, std::size_t bytes);

} // namespace onebit_test
