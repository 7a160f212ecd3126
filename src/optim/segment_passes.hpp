// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "compress/codec.hpp"
#include "optim/tensors.hpp"

namespace onebit {

/// What the optimizers hand to a compressed exchange: passes that work from segment to segment, on blocks that stay in
/// the cache between the kernels that a pass is made of.

/// Values that are computed from the rank's gradients and, where `start` fills it in, what is there already:
/// start(block, values), then body(segment, gradients, values) for each of its segments.
template <typename Start, typename Body>
class SegmentSource final : public ValueSource {
  public:
    SegmentSource(const Layout& layout, const OptimKernels& kernels, Start start, Body body)
        : layout_(layout), kernels_(kernels), start_(std::move(start)), body_(std::move(body)) {}

    const float* read(const Block& block, float* scratch) const override {
        alignas(64) float widened[kBlockElements];
        start_(block, scratch);
        for (const Segment& segment : layout_.segments(block)) {
            body_(segment, segment.read_gradients(kernels_, widened), scratch + (segment.offset - block.begin()));
        }
        return scratch;
    }

  private:
    const Layout& layout_;
    const OptimKernels& kernels_;
    Start start_;
    Body body_;
};

/// Takes decoded values: body(segment, values).
template <typename Body>
class SegmentSink final : public ValueSink {
  public:
    SegmentSink(const Layout& layout, Body body) : layout_(layout), body_(std::move(body)) {}

    float* place(const Block&, float* scratch) const override { return scratch; }
    void written(const Block& block, const float* values) const override {
        for (const Segment& segment : layout_.segments(block)) {
            body_(segment, values + (segment.offset - block.begin()));
        }
    }

  private:
    const Layout& layout_;
    Body body_;
};

} // namespace onebit
