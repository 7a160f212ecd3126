// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gradient_norm.hpp"

#include <algorithm>
#include <cstdint>

#include "collectives/wait.hpp"
#include "core/hash.hpp"

namespace onebit {
namespace {

/// Segments that share a sketch before all are added up: half a million elements to 4 KiB.
constexpr std::size_t kPieceSegments = 128;

} // namespace

GradientNorm::GradientNorm(std::unique_ptr<Transport> channel, std::size_t most_segments, double timeout,
                           const OptimKernels& kernels, unsigned threads)
    : channel_(std::move(channel)),
      timeout_(timeout),
      kernels_(kernels),
      threads_(threads),
      squares_(most_segments),
      pieces_(ceil_divide(most_segments, kPieceSegments) * kSketchBuckets),
      total_(kSketchBuckets) {}

Status GradientNorm::create(Communicator& communicator, std::size_t most_segments, const OptimKernels& kernels,
                            unsigned threads, std::unique_ptr<GradientNorm>* norm) {
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&channel));
    std::unique_ptr<GradientNorm> made;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        made.reset(
            new GradientNorm(std::move(channel), most_segments, communicator.environment().timeout, kernels, threads));
        return made->channel_->plan_sum(kSketchBuckets, &made->sum_);
    })));
    *norm = std::move(made);
    return {};
}

GradientNorm::~GradientNorm() {
    if (!broken_.ok()) total_.leak(); // a sum that never ended may still write to it
}

double GradientNorm::sum_squares(const Layout& layout, const float* values) {
    layout.for_each_segment(threads_, [&](const Segment& segment) {
        squares_[segment.index] = kernels_.sum_squares(values + segment.offset, segment.count);
    });
    double sum = 0;
    for (const Segment& segment : layout.segments()) sum += squares_[segment.index];
    return sum;
}

void GradientNorm::sketch(const Layout& layout) {
    const std::size_t segments = layout.segments().size();
    const std::size_t pieces = ceil_divide(segments, kPieceSegments);
    parallel_for(0, pieces, threads_, [&](std::size_t p) {
        float* const piece = pieces_.data() + p * kSketchBuckets;
        std::fill_n(piece, kSketchBuckets, 0.0F);
        const std::size_t first = p * kPieceSegments;
        for (const Segment& segment : layout.segments().subspan(first, std::min(kPieceSegments, segments - first))) {
            alignas(64) float scratch[kBlockElements];
            const std::uint64_t place[] = {segment.tensor->number, segment.begin};
            kernels_.sketch(segment.read_gradients(kernels_, scratch), segment.count, hash_bytes(place, sizeof(place)),
                            piece);
        }
    });
    for (std::size_t p = 0; p < pieces; ++p) {
        for (std::size_t b = 0; b < kSketchBuckets; ++b) total_[b] += pieces_[p * kSketchBuckets + b];
    }
}

Status GradientNorm::sum_squares_over_ranks(double* squares) {
    broken_ = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(sum_->start(total_.data(), total_.data(), true));
        return wait_until_done("the gradient norm", timeout_, [&](bool* done, bool*) { return sum_->test(done); });
    });
    ONEBIT_RETURN_IF_ERROR(broken_);
    *squares = 0;
    for (const float bucket : total_.view()) *squares += static_cast<double>(bucket) * bucket;
    return {};
}

} // namespace onebit
