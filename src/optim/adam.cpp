// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.hpp"

#include "optim/segment_passes.hpp"

namespace onebit {

Status Adam::create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                    std::unique_ptr<Optimizer>* optimizer) {
    std::unique_ptr<Adam> made(new Adam(std::move(settings), std::move(tensors)));
    ONEBIT_RETURN_IF_ERROR(made->prepare(communicator, false));
    *optimizer = std::move(made);
    return {};
}

void Adam::update_exactly(Bucket& bucket, float factor) {
    update_with_adam(bucket, factor, variance_updates(bucket));
}

Status Adam::freeze_bucket(Bucket& bucket) {
    freeze_variance(bucket, t() - 1);
    bucket.sum = {};
    return {};
}

Status Adam::update_compressed(Bucket& bucket, float factor) {
    const SegmentSource source(
        bucket.layout, kernels(), [&](const Block& block, float* m) { read_momentum(bucket, block, m); },
        [&](const Segment& segment, const float* gradients, float* m) {
            kernels().momentum(gradients, factor, 1, m, segment.count, betas(segment));
        });
    const SegmentSink sink(bucket.layout, [&](const Segment& segment, const float* m) {
        kernels().frozen_update(m, bucket.precondition.data() + segment.offset, segment.parameters(), segment.count,
                                update(segment, freeze_step()));
        segment.write_copy(kernels());
    });
    return exchange_momentum(bucket, source, sink);
}

} // namespace onebit
