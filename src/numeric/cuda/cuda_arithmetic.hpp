// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "core/cuda/device.hpp"
#include "numeric/arithmetic.hpp"
#include "numeric/cuda/kernels.hpp"

namespace onebit {

/// On a GPU, in order with a stream.
class CudaArithmetic final : public Arithmetic {
  public:
    explicit CudaArithmetic(cuda::Stream stream) : stream_(stream), device_(stream) {}

    Memory& memory() override { return device_; }
    Status failure() const override { return failure_; }
    void add(const float* from, std::size_t count, float* to) override {
        note(cuda::sum({{to, from}, 2, 1, count, to}, stream_));
    }
    void multiply(const float* from, float factor, std::size_t count, float* to) override {
        note(cuda::sum({{from}, 1, factor, count, to}, stream_));
    }
    /// In as few launches as possible. The sum of all but the last launch stays in the first part.
    void sum(std::span<float* const> parts, float factor, std::size_t count, float* to) override {
        cuda::SumArguments arguments = {{parts.front()}, 1, 1, count, parts.front()};
        for (const float* const part : parts.subspan(1)) {
            if (arguments.size == cuda::kMostParts) {
                note(cuda::sum(arguments, stream_));
                arguments.size = 1;
            }
            arguments.parts[arguments.size++] = part;
        }
        arguments.factor = factor;
        arguments.to = to;
        note(cuda::sum(arguments, stream_));
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
