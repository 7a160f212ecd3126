// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/partition.hpp"
#include "core/status.hpp"
#include "numeric/elements.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

/// Looks for values that are not finite in one kind of memory, in arrays of the type that it was made for. One thread
/// at a time.
class Search {
  public:
    virtual ~Search() = default;

    /// What went wrong so far, if anything did: a GPU may fail. Then nothing is found any more.
    virtual Status failure() const { return {}; }
    /// How many values to look at at a time, for callers that must look after the network in between.
    virtual std::size_t values_at_once() const = 0;
    /// True once *first is known: the index of the first NaN or infinity of values[0 .. count); count if there is none.
    /// Until then, call it again with the same arguments.
    virtual bool find_nonfinite(const void* values, std::size_t count, std::size_t* first) = 0;
    /// The same. Waits for a GPU.
    virtual std::size_t first_nonfinite(const void* values, std::size_t count) = 0;
};

/// The index of the first value in the host's memory that is a NaN or has a magnitude above `limit`, which is finite;
/// count if there is none. Any number of threads at once.
std::size_t first_beyond(const NumericKernels& kernels, float limit, const float* values, std::size_t count);

class HostSearch final : public Search {
  public:
    explicit HostSearch(const Elements& elements) : elements_(elements) {}

    std::size_t values_at_once() const override { return SliceCursor::kSliceBlocks * kBlockElements; }
    bool find_nonfinite(const void* values, std::size_t count, std::size_t* first) override {
        *first = first_nonfinite(values, count);
        return true;
    }
    std::size_t first_nonfinite(const void* values, std::size_t count) override;

  private:
    Elements elements_;
};

} // namespace onebit
