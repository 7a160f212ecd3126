// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/aligned_buffer.hpp"
#include "core/cuda/device.hpp"
#include "core/memory.hpp"
#include "core/status.hpp"
#include "numeric/cuda/kernels.hpp"

namespace onebit {

/// Where a search on the device leaves its result, and how the host comes to know it without waiting.
class Finding {
  public:
    explicit Finding(Memory& device) : on_device_(1, device), on_host_(2, cuda::pinned_memory()) {
        on_host_[kNothing] = cuda::kAllFinite;
    }

    unsigned long long* place() { return on_device_.data(); }
    /// Before searches that don't begin by themselves: nothing has been found yet.
    Status begin(cuda::Stream stream);
    /// The search is in the stream: what it finds is to be known.
    Status ask(cuda::Stream stream);
    bool asked() const { return asked_; }
    /// Whether the host knows what was asked for, and that. Then, or when the device has failed, nothing is asked any
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
