// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/gradient_norm.hpp"

#include <span>
#include <utility>

#include "collectives/arithmetic.hpp"
#include "collectives/stages.hpp"
#include "collectives/wait.hpp"

namespace onebit {

GradientNorm::GradientNorm(std::unique_ptr<Transport> channel, std::size_t most_segments, double timeout)
    : channel_(std::move(channel)),
      timeout_(timeout),
      squares_(most_segments),
      sketches_(sketch_floats(most_segments)),
      total_(kSketchBuckets) {}

Status GradientNorm::create(Communicator& communicator, std::size_t most_segments,
                            std::unique_ptr<GradientNorm>* norm) {
    std::unique_ptr<Transport> channel;
    ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&channel));
    std::unique_ptr<GradientNorm> made;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        made.reset(new GradientNorm(std::move(channel), most_segments, communicator.environment().timeout));
        return made->plan_sum();
    })));
    *norm = std::move(made);
    return {};
}

/// Of what lies in the host's memory. Where the transport's own sums are of a GPU's, it is messages that stop over
/// there; what they bring is added up in the order of ranks, as over loopback, and not in one of NCCL's own.
Status GradientNorm::plan_sum() {
    if (!channel_->is_stream_ordered()) return channel_->plan_sum(kSketchBuckets, &sum_);
    return DirectSum::create(*channel_, std::make_unique<HostArithmetic>(1), total_.data(), kSketchBuckets, 0,
                             &direct_sum_);
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

Status GradientNorm::sum_over_ranks() {
    constexpr const char* kWhat = "the gradient norm";
    if (direct_sum_ == nullptr) {
        ONEBIT_RETURN_IF_ERROR(sum_->start(total_.data(), total_.data(), true));
        return wait_until_done(kWhat, timeout_, [&](bool* done, bool*) { return sum_->test(done); });
    }
    StageRunner runner;
    runner.start(direct_sum_->stages());
    return wait_until_done(kWhat, timeout_, [&](bool* done, bool*) {
        Step step = Step::kDone;
        ONEBIT_RETURN_IF_ERROR(runner.advance(&step));
        *done = runner.finished();
        return Status();
    });
}

Status GradientNorm::sum_squares_over_ranks(double* squares) {
    broken_ = catch_exceptions([&] { return sum_over_ranks(); });
    if (!broken_.ok()) channel_->give_up(); // or the stream would wait for the others for ever
    ONEBIT_RETURN_IF_ERROR(broken_);
    *squares = 0;
    for (const float bucket : total_.view()) *squares += static_cast<double>(bucket) * bucket;
    return {};
}

} // namespace onebit
