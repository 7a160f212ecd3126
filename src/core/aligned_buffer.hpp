// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace onebit {

/// A zeroed array of trivial elements, aligned for the widest vectors. Large ones ask for huge pages: a pass over a
/// gigabyte in 4 KiB pages loses a tenth of the bandwidth to address translation.
template <typename T>
class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::size_t count) : count_(count) {
        if (count == 0) return;
        constexpr std::size_t kHugePage = std::size_t{2} << 20;
        void* memory = nullptr;
        const bool large = bytes() >= 2 * kHugePage;
        if (posix_memalign(&memory, large ? kHugePage : 64, bytes()) != 0) throw std::bad_alloc();
        data_.reset(static_cast<T*>(memory));
        if (large) madvise(memory, bytes(), MADV_HUGEPAGE);
        std::memset(memory, 0, bytes());
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
        void operator()(T* memory) const { std::free(memory); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t count_ = 0;
};

} // namespace onebit
