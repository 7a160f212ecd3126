// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The state that FusedOptimizer keeps for one tensor, as Adam's m and v, in whatever form it is kept: a program can
// read it, and can begin with the state of another optimizer.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "numeric/mean.hpp"
#include "optim/fused_optimizer.hpp"
#include "optim/kernels/arithmetic.hpp"

namespace onebit {
namespace {

Status check_which(onebit_state_t which) {
    if (which >= ONEBIT_STATE_EXP_AVG && which <= ONEBIT_STATE_SERVER_ERROR) return {};
    return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "which: %d is not one of its constants",
                         static_cast<int>(which));
}

/// The tensor in its bucket's arrays.
Segment whole_of(const Bucket& bucket, const Tensor& tensor) {
    const auto& tensors = bucket.layout.tensors();
    const auto found = std::ranges::find(tensors, &tensor);
    return bucket.layout.whole_tensor(static_cast<std::size_t>(found - tensors.begin()));
}

} // namespace

// -------------------------------------------------------------------------------------------------------- get ----

Status FusedOptimizer::get_state(std::size_t number, onebit_state_t which, float* values) const {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    ONEBIT_RETURN_IF_ERROR(check_number(number));
    ONEBIT_RETURN_IF_ERROR(check_which(which));
    if (values == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "values is NULL");
    const Bucket& bucket = buckets_[bucket_of_[number]];
    ONEBIT_RETURN_IF_ERROR(bucket.allreduce->check_idle());
    const Segment whole = whole_of(bucket, tensors_[number]);
    switch (which) {
        case ONEBIT_STATE_EXP_AVG:
            copy_momentum(bucket, whole, values);
            break;
        case ONEBIT_STATE_EXP_AVG_SQ:
            copy_variance(bucket, whole, values);
            break;
        case ONEBIT_STATE_WORKER_ERROR:
        case ONEBIT_STATE_SERVER_ERROR:
            return copy_error(bucket, whole, which, values);
    }
    return {};
}

/// The denominator and the bias corrections that the tensor's variance was frozen with.
AdamUpdate FusedOptimizer::frozen_update(const Tensor& tensor) const {
    return update_of(group_of(tensor), config().bias_correction != 0, t(), exact_rounds_);
}

/// v; after the freeze, the v that a thaw would go on with.
void FusedOptimizer::copy_variance(const Bucket& bucket, const Segment& whole, float* values) const {
    const bool is_frozen = bucket.compresses && frozen();
    const AlignedBuffer<float>& from = is_frozen ? bucket.precondition : bucket.v;
    memory().copy(values, from.data() + whole.offset, whole.count * sizeof(float));
    if (!is_frozen) return;
    const AdamUpdate update = frozen_update(*whole.tensor);
    const float ratio = follows() ? nearest_finite(follower_->ratio(whole.tensor->number)) : 1.0F;
    for (std::size_t i = 0; i < whole.count; ++i) values[i] = thawed_variance(values[i], ratio, update);
}

/// m, wherever it lies and whatever its units are.
void FusedOptimizer::copy_momentum(const Bucket& bucket, const Segment& whole, float* values) const {
    if (bucket.m.size() > 0) {
        memory().copy(values, bucket.m.data() + whole.offset, whole.count * sizeof(float));
    } else {
        copy_message(bucket, whole.offset, whole.count, values);
    }
    if (!bucket.compresses || !frozen()) return;
    std::vector<float> other(whole.count);
    if (exchanges_updates()) {
        copy_variance(bucket, whole, other.data());
        const AdamUpdate update = frozen_update(*whole.tensor);
        for (std::size_t i = 0; i < whole.count; ++i) values[i] = thawed_momentum(values[i], other[i], update);
        return;
    }
    memory().copy(other.data(), bucket.precondition.data() + whole.offset, whole.count * sizeof(float));
    const float unscale = 1 / message_scale(*whole.tensor);
    for (std::size_t i = 0; i < whole.count; ++i) { // a masked element's m, where there is one, moves nothing
        values[i] = other[i] > 0 ? saturated_product(values[i], unscale) : 0;
    }
}

/// The elements [begin, begin + count) of the bucket in the last message.
void FusedOptimizer::copy_message(const Bucket& bucket, std::size_t begin, std::size_t count, float* values) const {
    for (const Chunk& chunk : bucket.allreduce->delivery().chunks()) {
        const std::size_t first = std::max(begin, chunk.begin);
        const std::size_t end = std::min(begin + count, chunk.begin + chunk.count);
        if (first >= end) continue;
        std::vector<float> decoded(chunk.count);
        bucket.passes->copy_last_result(chunk, decoded.data());
        std::memcpy(values + (first - begin), decoded.data() + (first - chunk.begin), (end - first) * sizeof(float));
    }
}

Status FusedOptimizer::copy_error(const Bucket& bucket, const Segment& whole, onebit_state_t which,
                                  float* values) const {
    std::vector<float> all(bucket.layout.count());
    const bool worker = which == ONEBIT_STATE_WORKER_ERROR;
    float* const served = all.data() + bucket.allreduce->server_chunk().begin;
    ONEBIT_RETURN_IF_ERROR(bucket.allreduce->get_error(worker ? all.data() : nullptr, worker ? nullptr : served));
    std::memcpy(values, all.data() + whole.offset, whole.count * sizeof(float));
    return {};
}

// -------------------------------------------------------------------------------------------------------- set ----

Status FusedOptimizer::set_state(std::size_t number, onebit_state_t which, const float* values) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    ONEBIT_RETURN_IF_ERROR(check_number(number));
    ONEBIT_RETURN_IF_ERROR(check_which(which));
    if (values == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "values is NULL");
    const bool first = which == ONEBIT_STATE_EXP_AVG;
    if (!first && which != ONEBIT_STATE_EXP_AVG_SQ) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "which: an error is a rank's own, and can't be set: onebit_optimizer_unpack_state brings "
                             "it back, onebit_optimizer_reset_error begins it anew");
    }
    Bucket& bucket = buckets_[bucket_of_[number]];
    const Tensor& tensor = tensors_[number];
    if (bucket.compresses && is_frozen_or_will_be()) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "%s: frozen after step %llu: the variance is a preconditioner now, and the momentum a "
                             "message; both can be set before the freeze",
                             tensor.name.c_str(), static_cast<unsigned long long>(frozen() ? freeze_step_ : steps_));
    }
    ONEBIT_RETURN_IF_ERROR(check_moment(bucket, tensor, first, values));
    ONEBIT_RETURN_IF_ERROR(bucket.allreduce->check_idle());
    const Segment whole = whole_of(bucket, tensor);
    AlignedBuffer<float>& to = first ? bucket.m : bucket.v;
    memory().copy(to.data() + whole.offset, values, whole.count * sizeof(float));
    note_set(1 + 2 * number + (first ? 0 : 1), hash_bytes(values, whole.count * sizeof(float)));
    moments_set();
    return {};
}

/// Checks that a training can have come to it, as for a saved state.
Status FusedOptimizer::check_moment(const Bucket& bucket, const Tensor& tensor, bool first, const float* values) const {
    const std::uint64_t updates = may_freeze(bucket) ? exact_rounds_ : steps_;
    const double most = first ? greatest_mean(&onebit_param_group_t::beta1, steps_)
                              : greatest_mean(&onebit_param_group_t::beta2, updates);
    for (std::size_t i = 0; i < tensor.count; ++i) {
        const double value = values[i];
        if (std::isfinite(value) && std::abs(value) <= most && (first || value >= 0)) continue;
        const bool needs_steps = steps_ == 0 && std::isfinite(value) && (first || value >= 0);
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: values[%zu] is %g%s", tensor.name.c_str(), i, value,
                             needs_steps ? ", after no steps: onebit_optimizer_set_steps first"
                             : first     ? ", which no mean of gradients is"
                                         : ", which no mean of squares is");
    }
    return {};
}

Status FusedOptimizer::set_steps(std::uint64_t steps) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    if (steps == 0 || steps >= kImpossibleCount) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "steps: %llu is not in [1, 2^48)",
                             static_cast<unsigned long long>(steps));
    }
    if (is_frozen_or_will_be() || thaws_ > 0) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "frozen %s: what follows a freeze goes by the steps that were made",
                             is_frozen_or_will_be() ? "now" : "before");
    }
    steps_ = exact_rounds_ = steps;
    compressed_rounds_ = 0;
    if (freeze_rule_ != nullptr) freeze_rule_->forget();
    note_set(0, steps);
    steps_set();
    return {};
}

/// Only the last value set at a place counts, and its step.
void FusedOptimizer::note_set(std::size_t place, std::uint64_t what) {
    const std::array<std::uint64_t, 3> all = {place, what, steps_};
    const std::uint64_t before = std::exchange(set_hashes_[place], hash_bytes(all.data(), sizeof(all)));
    set_hash_ += set_hashes_[place] - before;
}

} // namespace onebit
