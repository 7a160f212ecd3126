// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/host_device.hpp"

namespace onebit::cuda {

/// A kernel's arguments for several slices at once, mostly of several chunks, because each launch costs some
/// microseconds. Each slice has a row of thread blocks, as many as the longest needs.
template <typename Arguments>
class Rows {
  public:
    /// So that the arguments of any kernel stay below 4 KiB.
    static constexpr std::size_t kMost = 16;

    Rows() = default;
    Rows(const Arguments& row) : count_(1), rows_{row} {} // NOLINT(google-explicit-constructor): one row will do

    /// Only if not full().
    void add(const Arguments& row) { rows_[count_++] = row; }
    void clear() { count_ = 0; }
    bool full() const { return count_ == kMost; }
    std::size_t count() const { return count_; }
    ONEBIT_HOST_DEVICE const Arguments& operator[](std::size_t row) const { return rows_[row]; }

  private:
    std::size_t count_ = 0;
    Arguments rows_[kMost];
};

} // namespace onebit::cuda
