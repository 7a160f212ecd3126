// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "collectives/arithmetic.hpp"
#include "collectives/cuda/kernels.hpp"
#include "core/cuda/device.hpp"

namespace onebit {

/// On a GPU, in order with a stream.
class CudaArithmetic final : public Arithmetic {
  public:
    explicit CudaArithmetic(cuda::Stream stream) : stream_(stream), device_(stream) {}

    Memory& memory() override { return device_; }
    Status failure() const override { return failure_; }
    void add(const float* from, std::size_t count, float* to) override { note(cuda::add({from, count, to}, stream_)); }
    void multiply(const float* from, float factor, std::size_t count, float* to) override {
        note(cuda::scale({from, factor, count, to}, stream_));
    }
    void sum(std::span<float* const> parts, std::size_t count, float* to) override {
        for (const float* const part : parts.subspan(1)) add(part, count, parts.front());
        if (parts.front() != to) note(cuda::copy_later(to, parts.front(), count * sizeof(float), stream_));
    }

  private:
    void note(const Status& status) {
        if (failure_.ok()) failure_ = status;
    }

    cuda::Stream stream_;
    cuda::DeviceMemory device_;
    Status failure_;
};

} // namespace onebit
