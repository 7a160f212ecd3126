// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.hpp"

namespace onebit {

Status Adam::create(Communicator& communicator, Settings settings, std::vector<Tensor> tensors,
                    std::unique_ptr<Optimizer>* optimizer) {
    std::unique_ptr<Adam> made(new Adam(std::move(settings), std::move(tensors)));
    ONEBIT_RETURN_IF_ERROR(made->prepare(communicator, false));
    *optimizer = std::move(made);
    return {};
}

void Adam::update_exactly(Bucket& bucket) {
    update_with_adam(bucket, variance_updates(bucket));
}

Status Adam::freeze_bucket(Bucket& bucket) {
    freeze_variance(bucket);
    drop_sum(bucket);
    return {};
}

std::unique_ptr<ValueSource> Adam::make_source(Bucket& bucket) {
    return bucket.passes->make_momentum_source([this](const Tensor& tensor) { return own_factor(tensor); });
}

void Adam::update_compressed(Bucket& bucket) {
    set_updates(exact_rounds());
    bucket.passes->update_from_message();
    bucket.m = {}; // from here on m is only in the message
}

} // namespace onebit
