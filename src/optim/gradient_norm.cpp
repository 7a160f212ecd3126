// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gradient_norm.hpp"

#include <span>
#include <utility>

#include "collectives/arithmetic.hpp"
#include "collectives/stages.hpp"
#include "core/wait.hpp"
#include "transport/give_up.hpp"

namespace onebit {

GradientNorm::GradientNorm(std::unique_ptr<Transport> channel, std::size_t most_segments, Patience patience)
    : channel_(std::move(channel)),
      patience_(std::move(patience)),
      squares_(most_segments),
      sketches_(sketch_floats(most_segments)),
      total_(kSketchBuckets) {}

Status GradientNorm::create(Communicator& communicator, std::size_t most_segments,
                            std::unique_ptr<GradientNorm>* norm) {
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&channel));
    std::unique_ptr<GradientNorm> made;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        made.reset(new GradientNorm(std::move(channel), most_segments, communicator.patience()));
        return DirectSum::create(*made->channel_, std::make_unique<HostArithmetic>(1), made->total_.data(),
                                 kSketchBuckets, 0, &made->sum_);
    })));
    *norm = std::move(made);
    return {};
}

GradientNorm::~GradientNorm() {
    if (!broken_.ok()) total_.leak(); // a sum that never ended may still write to it
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
    for (std::size_t i = 0; i < floats; ++i) total_[i % kSketchBuckets] += sketches_[i];
}

/// Of what lies in the host's memory, also where the gradients are a GPU's: added up in the order of ranks.
Status GradientNorm::sum_over_ranks() {
    StageRunner runner;
    runner.start(sum_->stages());
    return wait_until_done("the gradient norm", patience_, [&](bool* done, bool*) {
        Step step = Step::kDone;
        ONEBIT_RETURN_IF_ERROR(runner.advance(&step));
        *done = runner.finished();
        return Status();
    });
}

Status GradientNorm::sum_squares_over_ranks(double* squares) {
    broken_ = catch_exceptions([&] { return sum_over_ranks(); });
    if (!broken_.ok()) broken_ = give_up_on(*channel_, broken_); // or a stream would wait for the others for ever
    ONEBIT_RETURN_IF_ERROR(broken_);
    *squares = 0;
    for (const float bucket : total_.view()) *squares += static_cast<double>(bucket) * bucket;
    return {};
}

} // namespace onebit
