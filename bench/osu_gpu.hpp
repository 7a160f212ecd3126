// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's GPU, for osu_onebit_allreduce --accelerator cuda. In a build without CUDA there is none (osu_no_gpu.cpp).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "osu_support.hpp"

namespace onebit::bench {

class Gpu {
  public:
    // Why this rank can't have a GPU; "" if it can.
    static std::string missing();

    // The GPU whose number is the rank's number on its node, modulo the number of GPUs, as in OMB; and a stream there.
    // Collective. This and all functions below throw if CUDA fails.
    explicit Gpu(const Ranks& ranks);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    void* stream() const; // a cudaStream_t
    void wait() const;    // for all work in the stream

    // So many floats in the GPU's memory.
    using Buffer = std::unique_ptr<float[], void (*)(float*)>;
    static Buffer nothing() {
        return {nullptr, [](float*) {}};
    }
    Buffer allocate(std::size_t count) const;
    // Pins host memory that is copied often. Copies are direct while the returned object lives.
    Buffer pin(FloatBuffer& buffer, std::size_t count) const;
    // From the host's memory to the GPU's or back; waits.
    void copy(float* to, const float* from, std::size_t count) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace onebit::bench
