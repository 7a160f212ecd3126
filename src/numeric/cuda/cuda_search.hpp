// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/cuda/device.hpp"
#include "numeric/cuda/finding.hpp"
#include "numeric/search.hpp"

namespace onebit {

/// For floats in a GPU's memory, in order with a stream.
class CudaSearch final : public Search {
  public:
    explicit CudaSearch(cuda::Stream stream) : stream_(stream), device_(stream), finding_(device_) {}

    Status failure() const override { return failure_; }
    std::size_t values_at_once() const override { return SIZE_MAX; }
    bool find_nonfinite(const void* values, std::size_t count, std::size_t* first) override;
    std::size_t first_nonfinite(const void* values, std::size_t count) override;

  private:
    /// Keeps the first failure.
    void note(const Status& status);

    cuda::Stream stream_;
    cuda::DeviceMemory device_;
    Finding finding_;
    Status failure_;
};

} // namespace onebit
