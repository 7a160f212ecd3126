// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gradient_norm.hpp"

#include <span>
#include <utility>

namespace onebit {

GradientNorm::GradientNorm(std::size_t most_segments, std::unique_ptr<RankSum> total)
    : squares_(most_segments), sketches_(sketch_floats(most_segments)), total_(std::move(total)) {}

Status GradientNorm::create(Communicator& communicator, std::size_t most_segments,
                            std::unique_ptr<GradientNorm>* norm) {
    std::unique_ptr<RankSum> total;
    ONEBIT_RETURN_IF_ERROR(RankSum::create(communicator, kSketchBuckets, "the gradient norm", &total));
    return communicator.agree(catch_exceptions([&] {
        norm->reset(new GradientNorm(most_segments, std::move(total)));
        return Status();
    }));
}

double GradientNorm::sum_squares(const Bucket& bucket) {
    const std::size_t segments = bucket.layout.segments().size();
    bucket.passes->sum_squares(std::span(squares_).first(segments));
    double sum = 0;
    for (std::size_t i = 0; i < segments; ++i) sum += squares_[i];
    return sum;
}

void GradientNorm::sketch(const Bucket& bucket) {
    const std::size_t floats = sketch_floats(bucket.layout.segments().size());
    bucket.passes->sketch({sketches_.data(), floats});
    for (std::size_t i = 0; i < floats; ++i) total_->values()[i % kSketchBuckets] += sketches_[i];
}

Status GradientNorm::sum_squares_over_ranks(double* squares) {
    ONEBIT_RETURN_IF_ERROR(total_->run());
    *squares = 0;
    for (const float bucket : total_->values()) *squares += static_cast<double>(bucket) * bucket;
    return {};
}

} // namespace onebit
