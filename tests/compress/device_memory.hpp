// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Memory for the kernels under test: a GPU's, or the CPU's where the GPU is emulated.
#pragma once

#include <cstddef>
#include <vector>

namespace onebit {

void* allocate_on_device(std::size_t bytes);
void free_on_device(void* memory);
/// From or to a device, when all that was launched is done.
void copy_memory(void* to, const void* from, std::size_t bytes);

/// An array on the device.
template <typename T>
class DeviceArray {
  public:
    explicit DeviceArray(const std::vector<T>& values)
        : count_(values.size()), data_(static_cast<T*>(allocate_on_device(count_ * sizeof(T)))) {
        set(values);
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() { free_on_device(data_); }

    T* data() const { return data_; }
    void set(const std::vector<T>& values) { copy_memory(data_, values.data(), count_ * sizeof(T)); }
    std::vector<T> get() const {
        std::vector<T> values(count_);
        copy_memory(values.data(), data_, count_ * sizeof(T));
        return values;
    }

  private:
    std::size_t count_;
    T* data_;
};

} // namespace onebit
