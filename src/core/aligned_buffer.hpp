// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "core/memory.hpp"

namespace onebit {

/// A zeroed array of trivial elements, in the host's memory or another. Elements can be seen here only in the host's.
template <typename T>
class AlignedBuffer { // NOLINT(cppcoreguidelines-special-member-functions): data_ can't be copied, and frees itself
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::size_t count, Memory& memory = host_memory()) : count_(count) {
        if (count > 0) data_ = {static_cast<T*>(memory.allocate(bytes())), Free{&memory, bytes()}};
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
        if (count_ > 0) memory().fill_zero(data(), bytes());
    }

    /// Copies all of it to or from an array of the host's.
    void copy_from(const T* values) {
        if (count_ > 0) memory().copy(data(), values, bytes());
    }
    void copy_to(T* values) const {
        if (count_ > 0) memory().copy(values, data(), bytes());
    }

  private:
    struct Free {
        Memory* memory = nullptr;
        std::size_t bytes = 0;
        void operator()(T* data) const { memory->release(data, bytes); }
    };
    Memory& memory() const { return *data_.get_deleter().memory; }

    std::unique_ptr<T, Free> data_;
    std::size_t count_ = 0;
};

} // namespace onebit
