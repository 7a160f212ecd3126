// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory for the kernels under test: a GPU's, or the CPU's where the GPU is emulated.
#pragma once

#include <cstddef>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"

namespace onebit {

inline Memory& device_memory() {
    static cuda::DeviceMemory memory(nullptr);
    return memory;
}

/// An array on the device.
template <typename T>
class DeviceArray {
  public:
    explicit DeviceArray(const std::vector<T>& values) : buffer_(values.size(), device_memory()) { set(values); }

    T* data() const { return const_cast<T*>(buffer_.data()); } // the values of a const object are writable, too
    void set(const std::vector<T>& values) { buffer_.copy_from(values.data()); }
    std::vector<T> get() const {
        std::vector<T> values(buffer_.size());
        buffer_.copy_to(values.data());
        return values;
    }

  private:
    AlignedBuffer<T> buffer_;
};

} // namespace onebit
