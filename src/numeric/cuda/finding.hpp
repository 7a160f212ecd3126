// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/memory.hpp"
#include "core/status.hpp"
#include "numeric/cuda/kernels.hpp"

namespace onebit {

/// Where a search on the device leaves its result, and how the host gets it without waiting.
class Finding {
  public:
    explicit Finding(Memory& device) : on_device_(1, device), on_host_(2, cuda::pinned_memory()) {
        on_host_[kNothing] = cuda::kAllFinite;
    }

    unsigned long long* place() { return on_device_.data(); }
    /// Called before searches that don't begin by themselves: nothing is found yet.
    Status begin(cuda::Stream stream);
    /// Called when the search is in the stream: asks for its result.
    Status ask(cuda::Stream stream);
    bool asked() const { return asked_; }
    /// Whether the host knows the result, and the result. Then, or when the device has failed, nothing is asked any
    /// more.
    Status test(bool* known, unsigned long long* first);

  private:
    enum { kFound, kNothing }; ///< in `on_host_`

    AlignedBuffer<unsigned long long> on_device_;
    AlignedBuffer<unsigned long long> on_host_;
    cuda::Event there_;
    bool asked_ = false;
};

} // namespace onebit
