// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace onebit {

/// Zeroed memory, aligned for the widest vectors; throws std::bad_alloc. Large pieces ask for huge pages: a pass over a
/// gigabyte in 4 KiB pages loses a tenth of the bandwidth to address translation.
void* allocate_memory(std::size_t bytes);
void free_memory(void* memory, std::size_t bytes);

/// A zeroed array of trivial elements.
template <typename T>
class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::size_t count) : count_(count) {
        if (count > 0) data_ = {static_cast<T*>(allocate_memory(bytes())), Free{bytes()}};
    }

    AlignedBuffer(AlignedBuffer&& other) noexcept
        : data_(std::move(other.data_)), count_(std::exchange(other.count_, 0)) {}
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
        data_ = std::move(other.data_);
        count_ = std::exchange(other.count_, 0);
        return *this;
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    T& operator[](std::size_t i) { return data_.get()[i]; }
    const T& operator[](std::size_t i) const { return data_.get()[i]; }
    std::span<const T> view() const { return {data(), count_}; }
    /// Never frees the memory.
    void leak() { (void)data_.release(); }
    void fill_zero() {
        if (count_ > 0) std::memset(data(), 0, bytes());
    }

  private:
    struct Free {
        std::size_t bytes = 0;
        void operator()(T* memory) const { free_memory(memory, bytes); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t count_ = 0;
};

} // namespace onebit
