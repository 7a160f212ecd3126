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
    // Why this rank can't have one; "" where it can.
    static std::string missing();

    // The one with the rank's number among those of its node, modulo the number of GPUs, as OMB chooses them; and a
    // stream there. Collective. This and all below throw where CUDA fails.
    explicit Gpu(const Ranks& ranks);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    void* stream() const; // a cudaStream_t
    void wait() const;    // for all that is in it

    // So many floats in its memory.
    using Buffer = std::unique_ptr<float[], void (*)(float*)>;
    static Buffer nothing() {
        return {nullptr, [](float*) {}};
    }
    Buffer allocate(std::size_t count) const;
    // Host memory that is copied often, which needs no stopover while what is returned lives.
    Buffer pin(FloatBuffer& buffer, std::size_t count) const;
    // From the host's memory to the GPU's or back; waits.
    void copy(float* to, const float* from, std::size_t count) const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace onebit::bench
