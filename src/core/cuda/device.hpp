// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/memory.hpp"
#include "core/status.hpp"

struct CUstream_st; // what CUDA's own cudaStream_t points to: no user of this header needs CUDA's

namespace onebit::cuda {

using Stream = CUstream_st*;

/// The memory of the current device; what is copied and zeroed is so in order with the stream's work.
class DeviceMemory final : public Memory {
  public:
    explicit DeviceMemory(Stream stream) : stream_(stream) {}

    void* allocate(std::size_t bytes) override;
    void free(void* memory, std::size_t bytes) override;
    void copy(void* to, const void* from, std::size_t bytes) override;
    void fill_zero(void* memory, std::size_t bytes) override;

  private:
    Stream stream_;
};

/// Copies in order with the stream's work and doesn't wait for it. Memory of the host that isn't pinned is read before
/// this returns.
Status copy_later(void* to, const void* from, std::size_t bytes, Stream stream);

/// Waits for all that the stream was given; tells what went wrong on the device.
Status wait_for(Stream stream);

} // namespace onebit::cuda
