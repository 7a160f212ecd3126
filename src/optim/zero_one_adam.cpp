// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/zero_one_adam.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "optim/segment_passes.hpp"

namespace onebit {

ZeroOneAdam::ZeroOneAdam(Settings settings, std::vector<Tensor> tensors)
    : FusedOptimizer(std::move(settings), std::move(tensors)), lr_sum_(groups().size()), decay_(groups().size()) {}

Status ZeroOneAdam::create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                           std::unique_ptr<Optimizer>* optimizer) {
    std::unique_ptr<ZeroOneAdam> made(new ZeroOneAdam(std::move(settings), std::move(tensors)));
    ONEBIT_RETURN_IF_ERROR(made->prepare(communicator, false));
    *optimizer = std::move(made);
    return {};
}

// ---------------------------------------------------------------------------------------------------- schedule ----

Round ZeroOneAdam::next_round() const {
    if (frozen()) return local_round();
    return t() % schedule_.exact_interval == 0 ? Round::kExact : Round::kCompressed;
}

void ZeroOneAdam::finish_step(Round round) {
    ZeroOneSchedule& s = schedule_;
    if (frozen()) {
        if (round == Round::kCompressed) { // the ranks have met
            std::ranges::fill(lr_sum_, 0);
            std::ranges::fill(decay_, 0);
        }
        if (++s.steps_of_interval < config().local_step_scaler) return;
        s.steps_of_interval = 0;
        s.local_interval = std::min(2 * s.local_interval, config().local_steps);
    } else if (round == Round::kExact) {
        mask_is_old_ = true;
        ++s.exact_rounds;
        if (++s.rounds_of_interval < config().variance_updates) return;
        s.rounds_of_interval = 0;
        s.exact_interval *= 2;
    } else {
        mask_is_old_ = false;
    }
}

void ZeroOneAdam::visit_numbers(NumberVisitor& visitor) {
    for (std::uint64_t* number : {&schedule_.exact_interval, &schedule_.exact_rounds, &schedule_.rounds_of_interval,
                                  &schedule_.local_interval, &schedule_.steps_of_interval}) {
        visitor.visit(*number);
    }
    visitor.visit(lr_sum_);
    visitor.visit(decay_);
}

// --------------------------------------------------------------------------------------- A: before the freeze ----

void ZeroOneAdam::update_exactly(Bucket& bucket, float factor) {
    update_with_adam(bucket, factor, bucket.compresses ? schedule_.exact_rounds + 1 : t());
}

Status ZeroOneAdam::update_compressed(Bucket& bucket, float factor) {
    return frozen() ? meet(bucket, factor) : average_gradients(bucket, factor);
}

/// A round that spares v.
Status ZeroOneAdam::average_gradients(Bucket& bucket, float factor) {
    if (mask_is_old_) ONEBIT_RETURN_IF_ERROR(mask_zero_variance(bucket));
    set_updates(schedule_.exact_rounds);
    const SegmentSource source(bucket.layout, kernels(),
                               [&](const Segment& segment, const float* gradients, float* values) {
                                   kernels().multiply(gradients, factor, segment.count, values);
                               });
    const SegmentSink sink(bucket.layout, [&](const Segment& segment, const float* average) {
        alignas(64) float u[kTileElements];
        float* const m = bucket.m.data() + segment.offset;
        kernels().momentum(average, 1, m, segment.count, betas(segment));
        kernels().direction(m, bucket.v.data() + segment.offset, segment.parameters(), segment.count, update(segment),
                            u);
        kernels().descend(u, update(segment).lr, segment.parameters(), segment.count);
        segment.write_copy(kernels());
    });
    return bucket.allreduce->run_compressed(source, &sink);
}

// ------------------------------------------------------------------------------------------------ the freeze ----

Status ZeroOneAdam::freeze_bucket(Bucket& bucket) {
    // Preconditioned by 1 / infinity, masked elements keep their places whatever their gradients.
    for (std::size_t i = 0; i < bucket.v.size(); ++i) {
        if (bucket.v[i] <= 0) bucket.v[i] = std::numeric_limits<float>::infinity();
    }
    freeze_variance(bucket, schedule_.exact_rounds);
    bucket.anchor = AlignedBuffer<float>(bucket.layout.count());
    bucket.layout.for_each_segment(threads(), [&](const Segment& segment) {
        std::memcpy(bucket.anchor.data() + segment.offset, segment.parameters(), segment.count * sizeof(float));
    });
    bucket.sum = {};
    return bucket.allreduce->reset();
}

// ---------------------------------------------------------------------------------------- B: after the freeze ----

/// Adam with this rank's own gradients; weight decay waits for the round.
void ZeroOneAdam::step_alone(Bucket& bucket, const Segment& segment, const float* gradients, float factor) const {
    float* const m = bucket.m.data() + segment.offset;
    AdamUpdate without_decay = update(segment);
    without_decay.weight_decay = 0;
    kernels().momentum(gradients, factor, m, segment.count, betas(segment));
    kernels().frozen_update(m, bucket.precondition.data() + segment.offset, segment.parameters(), segment.count,
                            without_decay);
}

/// What a step after the freeze adds to L and to the decay.
void ZeroOneAdam::begin_updates(Round) {
    if (!frozen()) return;
    for (std::size_t g = 0; g < groups().size(); ++g) {
        const AdamUpdate update = update_of(groups()[g], config().bias_correction != 0, t(), 0);
        lr_sum_[g] += static_cast<double>(update.lr) * update.correct_m;
        decay_[g] += groups()[g].lr * groups()[g].weight_decay;
    }
}

void ZeroOneAdam::update_locally(Bucket& bucket, float factor) {
    set_updates(freeze_step());
    bucket.layout.for_each_segment(threads(), [&](const Segment& segment) {
        alignas(64) float widened[kBlockElements];
        step_alone(bucket, segment, segment.read_gradients(kernels(), widened), factor);
        segment.write_copy(kernels());
    });
}

/// A local step, then a round that brings the ranks together at the average of what each has done since the last one.
Status ZeroOneAdam::meet(Bucket& bucket, float factor) {
    set_updates(freeze_step());
    const SegmentSource source(bucket.layout, kernels(),
                               [&](const Segment& segment, const float* gradients, float* values) {
                                   step_alone(bucket, segment, gradients, factor);
                                   kernels().drift(segment.parameters(), bucket.anchor.data() + segment.offset,
                                                   bucket.precondition.data() + segment.offset, segment.count, values);
                               });
    const SegmentSink sink(bucket.layout, [&](const Segment& segment, const float* average) {
        const double lr_sum = lr_sum_[segment.tensor->group];
        if (lr_sum > 0) {
            kernels().multiply(average, static_cast<float>(-1 / lr_sum), segment.count,
                               bucket.m.data() + segment.offset);
        }
        kernels().rejoin(average, bucket.precondition.data() + segment.offset,
                         static_cast<float>(decay_[segment.tensor->group]), bucket.anchor.data() + segment.offset,
                         segment.parameters(), segment.count);
        segment.write_copy(kernels());
    });
    return bucket.allreduce->run_compressed(source, &sink);
}

} // namespace onebit
