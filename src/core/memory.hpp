// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onebit {

/// A place where buffers lie: the host's memory, or a GPU's. Outlives all that lies in it.
class Memory {
  public:
    /// Zeroed, aligned for the widest vectors. If the memory is a GPU's and the GPU has failed, all of these throw:
    /// std::bad_alloc, or std::runtime_error with the GPU's message.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void release(void* memory, std::size_t bytes) = 0;
    /// Either side may be in this memory or the host's. In order with all work on it; done when it returns.
    virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
    virtual void fill_zero(void* memory, std::size_t bytes) = 0;

  protected:
    ~Memory() = default; // none is deleted through this, and the host's never: it must outlive every static object
};

Memory& host_memory();

} // namespace onebit
