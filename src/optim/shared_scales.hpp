// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"

namespace onebit {

/// Where momenta are compressed: how far a shared scale moves elements whose D is far below the D of other elements
/// (docs/OPTIMIZERS.md, "Small variances"). Known once D is frozen, before any compressed step.
class SharedScales {
  public:
    /// For the buckets that compress. `memory`: where their masks lie.
    SharedScales(const std::vector<Bucket>& buckets, onebit_group_t group, Memory& memory);

    /// Looks at the frozen preconditioners. message_scale(tensor): the factor of a momentum for its message. Copies the
    /// preconditioners from a GPU. On the host it needs no memory.
    void look_at(const std::vector<Bucket>& buckets, const Passes::FactorOf& message_scale);

    /// An element's step with the shared scale over its step with its own scale: the largest ratio, at least 1.
    double step_ratio() const { return step_ratio_; }
    /// The number of the tensor of the element with this ratio.
    std::size_t tensor() const { return tensor_; }
    std::size_t bytes() const { return found_.size() * sizeof(Found) + mask_.bytes(); }

  private:
    /// Of a message's mean magnitudes, over a segment's elements that aren't masked.
    struct Found {
        double squares = 0;
        double least = 0;
        std::size_t count = 0;
    };
    void find(const Bucket& bucket, const Passes::FactorOf& message_scale);
    void compare(std::span<const Segment> sharing);

    bool by_block_;
    Memory& memory_;
    std::vector<Found> found_; ///< by a bucket's segment
    AlignedBuffer<std::uint32_t> mask_;
    double step_ratio_ = 1;
    std::size_t tensor_ = 0;
};

} // namespace onebit
