// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "compress/codec.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/passes.hpp"
#include "optim/tensors.hpp"

namespace onebit {

/// What the optimizers hand to a compressed exchange: passes that work from segment to segment, on pieces that stay in
/// the cache between the kernels that a pass is made of.

/// Values that are computed from the rank's gradients: body(segment, gradients, values).
template <typename Body>
class SegmentSource final : public ValueSource {
  public:
    SegmentSource(const Layout& layout, const NumericKernels& kernels, Body body)
        : layout_(layout), kernels_(kernels), body_(std::move(body)) {}

    BlockValues read(const Block& block, float* scratch) const override {
        alignas(64) float widened[kBlockElements];
        for (const Segment& segment : layout_.segments(block)) {
            body_(segment, segment.read_gradients(kernels_, widened), scratch + (segment.offset - block.begin()));
        }
        return {scratch};
    }

  private:
    const Layout& layout_;
    const NumericKernels& kernels_;
    Body body_;
};

/// Updates m with a segment's gradients times `factor`, weighted by the preconditioner where updates are exchanged.
inline void move_momentum(const Segment& segment, const OptimKernels& kernels, const PassSettings& settings,
                          const AlignedBuffer<float>& precondition, const float* gradients, float factor, float* m) {
    const AdamBetas& betas = settings.betas[segment.tensor->group];
    if (settings.exchange_updates) {
        kernels.weighted_momentum(gradients, factor, precondition.data() + segment.offset, m, segment.count, betas);
    } else {
        kernels.momentum(gradients, factor, m, segment.count, betas);
    }
}

/// The arrays that a momentum is made of.
struct MomentumArrays {
    const AlignedBuffer<float>& m; ///< empty while m is the message
    const AlignedBuffer<float>& precondition;
};

/// The momentum that 1-bit Adam encodes, beta1 m + (1 - beta1) factor g, g weighted where updates are exchanged. m is
/// the last message. Then the encoder, if it `takes_blends`, forms a block within one tensor whose gradients are
/// floats, in one pass. Other blocks, and all blocks where m lies in memory, are formed segment by segment.
/// factor(tensor) is the factor; read_message(block, m) gives the same m. Ranks that encode as one share their
/// gradients.
template <typename Factor, typename ReadMessage>
class MomentumSource final : public ValueSource {
  public:
    MomentumSource(const Layout& layout, const NumericKernels& numeric, const OptimKernels& kernels,
                   const PassSettings& settings, const MomentumArrays& arrays, bool takes_blends, Factor factor,
                   ReadMessage read_message)
        : layout_(layout),
          numeric_(numeric),
          kernels_(kernels),
          settings_(settings),
          arrays_(arrays),
          takes_blends_(takes_blends),
          factor_(std::move(factor)),
          read_message_(std::move(read_message)) {}

    BlockValues read(const Block& block, float* scratch) const override {
        const std::span<const Segment> segments = layout_.segments(block);
        const Segment& first = segments.front();
        if (is_for_encoder(block) && first.tensor->gradient_type == ONEBIT_FLOAT32) {
            return blend(first, first.read_gradients(numeric_, scratch)); // where they lie
        }
        read_m(block, scratch);
        for (const Segment& segment : segments) {
            alignas(64) float widened[kBlockElements];
            move(segment, segment.read_gradients(numeric_, widened), scratch + (segment.offset - block.begin()));
        }
        return {scratch};
    }

    const float* read_share(const Block& block, float* scratch) const override {
        const std::span<const Segment> segments = layout_.segments(block);
        if (segments.size() == 1) return segments.front().read_gradients(numeric_, scratch);
        for (const Segment& segment : segments) {
            float* const place = scratch + (segment.offset - block.begin());
            const float* const gradients = segment.read_gradients(numeric_, place);
            if (gradients != place) std::memcpy(place, gradients, segment.count * sizeof(float));
        }
        return scratch;
    }

    BlockValues of_mean(const Block& block, float* mean) const override {
        const std::span<const Segment> segments = layout_.segments(block);
        if (is_for_encoder(block)) return blend(segments.front(), mean);
        alignas(64) float m[kBlockElements];
        read_m(block, m);
        for (const Segment& segment : segments) {
            const std::size_t at = segment.offset - block.begin();
            move(segment, mean + at, m + at);
        }
        std::memcpy(mean, m, block.count() * sizeof(float));
        return {mean};
    }

  private:
    bool is_for_encoder(const Block& block) const {
        return takes_blends_ && arrays_.m.size() == 0 && layout_.segments(block).size() == 1;
    }
    BlockValues blend(const Segment& segment, const float* gradients) const {
        const AdamBetas& b = settings_.betas[segment.tensor->group];
        return {gradients,
                Blend{b.beta1, b.one_minus_beta1, factor_(*segment.tensor), weights(segment), b.most_weighted}};
    }
    void read_m(const Block& block, float* m) const {
        if (arrays_.m.size() == 0) {
            read_message_(block, m);
        } else {
            std::memcpy(m, arrays_.m.data() + block.begin(), block.count() * sizeof(float));
        }
    }
    void move(const Segment& segment, const float* gradients, float* m) const {
        move_momentum(segment, kernels_, settings_, arrays_.precondition, gradients, factor_(*segment.tensor), m);
    }
    const float* weights(const Segment& segment) const {
        return settings_.exchange_updates ? arrays_.precondition.data() + segment.offset : nullptr;
    }

    const Layout& layout_;
    const NumericKernels& numeric_;
    const OptimKernels& kernels_;
    const PassSettings& settings_;
    MomentumArrays arrays_;
    bool takes_blends_;
    Factor factor_;
    ReadMessage read_message_;
};

/// Takes decoded values tile by tile: body(segment, values). A segment may be a part of one of the layout's segments.
template <typename Body>
class SegmentSink final : public ValueSink {
  public:
    SegmentSink(const Layout& layout, Body body) : layout_(layout), body_(std::move(body)) {}

    float* place(std::size_t, float* scratch) const override { return scratch; }
    void written(const Block& block, std::size_t begin, std::size_t count, const float* values) const override {
        for (const Segment& segment : layout_.segments(block)) {
            const Segment part = segment.within(begin, count);
            if (part.count > 0) body_(part, values + (part.offset - begin));
        }
    }

  private:
    const Layout& layout_;
    Body body_;
};

} // namespace onebit
