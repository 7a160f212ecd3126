// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/fused_optimizer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace onebit {
namespace {

/// The exchange of a bucket. The optimizer has agreed on all checks by the time it calls it.
onebit_allreduce_config_t exchange_config(const onebit_optimizer_config_t& config, std::size_t count, bool compresses) {
    onebit_allreduce_config_t exchange = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    exchange.algorithm = compresses ? ONEBIT_ALGORITHM_FLAT : ONEBIT_ALGORITHM_DENSE;
    exchange.scale = config.scale;
    exchange.group = config.group;
    exchange.check = ONEBIT_CHECK_NONE;
    exchange.threads = config.threads;
    return exchange;
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

FusedOptimizer::FusedOptimizer(Settings settings, std::vector<Tensor> tensors)
    : settings_(std::move(settings)), tensors_(std::move(tensors)), updates_(settings_.groups.size()) {
    for (const onebit_param_group_t& group : settings_.groups) betas_.push_back(betas_of(group));
}

Status FusedOptimizer::prepare(Communicator& communicator, bool keep_results) {
    std::vector<const Tensor*> compressed;
    std::vector<const Tensor*> exact;
    for (const Tensor& tensor : tensors_) {
        const bool compresses = settings_.compresses() && settings_.groups[tensor.group].no_compress == 0;
        (compresses ? compressed : exact).push_back(&tensor);
    }
    if (settings_.compresses()) {
        ONEBIT_RETURN_IF_ERROR(add_bucket(communicator, std::move(compressed), true, keep_results));
    }
    if (!exact.empty()) ONEBIT_RETURN_IF_ERROR(add_bucket(communicator, std::move(exact), false, false));

    const Allreduce& first = *buckets_.front().allreduce;
    kernels_ = &optim_kernels(first.codec().kernels());
    threads_ = first.plan().threads;
    std::size_t most_segments = 0;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        double beta2 = 0;
        for (Bucket& bucket : buckets_) {
            bucket.sum = AlignedBuffer<float>(bucket.layout.count());
            bucket.m = AlignedBuffer<float>(bucket.layout.count());
            bucket.v = AlignedBuffer<float>(bucket.layout.count());
            most_segments = std::max(most_segments, bucket.layout.segments().size());
            for (const Tensor* tensor : bucket.layout.tensors()) {
                if (bucket.compresses) beta2 = std::max(beta2, settings_.groups[tensor->group].beta2);
            }
        }
        if (settings_.compresses() && config().freeze_step == ONEBIT_FREEZE_AUTO) {
            automatic_freeze_.emplace(beta2, config().lr_warmup_steps);
        }
        return Status();
    })));
    if (config().max_grad_norm <= 0) return {};
    return GradientNorm::create(communicator, most_segments, *kernels_, threads_, &norm_);
}

Status FusedOptimizer::add_bucket(Communicator& communicator, std::vector<const Tensor*> tensors, bool compresses,
                                  bool keep_results) {
    Bucket bucket;
    bucket.compresses = compresses;
    Status own = catch_exceptions([&] {
        bucket.layout = Layout(std::move(tensors), static_cast<std::size_t>(communicator.size()));
        return Status();
    });
    const std::size_t count = bucket.layout.count();
    if (own.ok() && count < static_cast<std::size_t>(communicator.size())) {
        own = Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensors: %zu elements %s are fewer than the %d ranks",
                            count, compresses ? "to be compressed" : "in all", communicator.size());
    }
    const onebit_allreduce_config_t exchange = exchange_config(config(), count, compresses);
    ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &exchange, own, &bucket.allreduce, keep_results));
    buckets_.push_back(std::move(bucket));
    return {};
}

// ------------------------------------------------------------------------------------------------------ step ----

Status FusedOptimizer::step() {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    const Round round = freeze_requested_ ? round_after_freeze() : next_round();
    const Status agreed = buckets_.front().allreduce->agree_now(
        look_at_gradients(round), static_cast<std::uint32_t>(round) + (freeze_requested_ ? 10 : 0), settings_.hash(),
        {"the stage (0 exact, 1 compressed, 2 local; 10 more right after the freeze)",
         "the learning rates or the gradient scale (their hash)"});
    if (agreed.code() == ONEBIT_ERROR_NONFINITE) ++skipped_;
    ONEBIT_RETURN_IF_ERROR(agreed);
    if (freeze_requested_) ONEBIT_RETURN_IF_ERROR(change_over());

    for (Bucket& bucket : buckets_) {
        if (averages_exactly(bucket, round)) ONEBIT_RETURN_IF_ERROR(bucket.allreduce->run_sum(bucket.sum.data()));
    }
    double factor = 1;
    ONEBIT_RETURN_IF_ERROR(find_factor(round, &factor));
    begin_updates(round);
    const double share = 1.0 / buckets_.front().allreduce->channel().size();
    for (Bucket& bucket : buckets_) {
        if (averages_exactly(bucket, round)) {
            update_exactly(bucket, static_cast<float>(factor * share));
        } else if (round == Round::kCompressed) {
            ONEBIT_RETURN_IF_ERROR(update_compressed(bucket, static_cast<float>(factor)));
        } else {
            update_locally(bucket, static_cast<float>(factor));
        }
    }
    finish_step(round);
    ++steps_;
    exact_rounds_ += round == Round::kExact ? 1 : 0;
    compressed_rounds_ += round == Round::kCompressed ? 1 : 0;
    if (warmup_ends()) request_freeze();
    return {};
}

/// What broke an exchange breaks the optimizer.
Status FusedOptimizer::check_usable() const {
    for (const Bucket& bucket : buckets_) ONEBIT_RETURN_IF_ERROR(bucket.allreduce->check_idle());
    return norm_ == nullptr ? Status() : norm_->broken();
}

/// Looks for missing and for bad ones, from all of which the first is reported. Changes nothing but sums.
Status FusedOptimizer::look_at_gradients(Round round) {
    for (const Tensor& tensor : tensors_) {
        if (tensor.gradients == nullptr) {
            return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "%s: it has no gradients (NULL)", tensor.name.c_str());
        }
    }
    for (Bucket& bucket : buckets_) {
        const bool gather = averages_exactly(bucket, round);
        std::atomic<std::size_t> first_bad = SIZE_MAX;
        bucket.layout.for_each_segment(threads_, [&](const Segment& segment) {
            alignas(64) float scratch[kBlockElements];
            const float* values = segment.read_gradients(*kernels_, scratch);
            if (gather) {
                float* const place = bucket.sum.data() + segment.offset;
                std::memcpy(place, values, segment.count * sizeof(float));
                values = place;
            }
            if (bucket.allreduce->codec().first_nonfinite(values, segment.count) == segment.count) return;
            for (std::size_t seen = first_bad; segment.index < seen;) {
                if (first_bad.compare_exchange_weak(seen, segment.index)) break;
            }
        });
        if (first_bad != SIZE_MAX) return describe_nonfinite(bucket.layout.segments()[first_bad]);
    }
    return {};
}

Status FusedOptimizer::describe_nonfinite(const Segment& segment) const {
    float scratch[kBlockElements];
    const float* const values = segment.read_gradients(*kernels_, scratch);
    const std::size_t i = buckets_.front().allreduce->codec().first_nonfinite(values, segment.count);
    return Status::error(ONEBIT_ERROR_NONFINITE, "%s: gradients[%zu] is %g", segment.tensor->name.c_str(),
                         segment.begin + i, static_cast<double>(values[i]));
}

/// What this step's gradients are multiplied by. Collective where they are clipped but not all averaged exactly.
Status FusedOptimizer::find_factor(Round round, double* factor) {
    *factor = 1 / settings_.gradient_scale;
    if (norm_ == nullptr) return {};
    double squares = 0; // of the sum over the ranks
    if (round == Round::kExact) {
        for (const Bucket& bucket : buckets_) squares += norm_->sum_squares(bucket.layout, bucket.sum.data());
    } else {
        norm_->restart();
        for (const Bucket& bucket : buckets_) norm_->sketch(bucket.layout);
        ONEBIT_RETURN_IF_ERROR(norm_->sum_squares_over_ranks(&squares));
    }
    const double norm = std::sqrt(squares) / buckets_.front().allreduce->channel().size() / settings_.gradient_scale;
    if (!std::isfinite(norm)) { // the same on every rank
        ++skipped_;
        return Status::error(ONEBIT_ERROR_NONFINITE,
                             "the squares of the gradients overflow float32: no norm to clip to");
    }
    grad_norm_ = norm;
    if (grad_norm_ > config().max_grad_norm) *factor *= config().max_grad_norm / grad_norm_;
    return {};
}

// ---------------------------------------------------------------------------------------------------- freeze ----

/// Whether the step just made was the warm-up's last.
bool FusedOptimizer::warmup_ends() {
    if (!settings_.compresses() || frozen() || freeze_requested_) return false;
    if (automatic_freeze_) return automatic_freeze_->observe(steps_, variance_norm());
    return steps_ >= config().freeze_step; // later only where a load has brought more steps
}

/// From the warm-up to what comes after it. Collective; blocks.
Status FusedOptimizer::change_over() {
    for (Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        ONEBIT_RETURN_IF_ERROR(mask_zero_variance(bucket));
        ONEBIT_RETURN_IF_ERROR(freeze_bucket(bucket));
    }
    freeze_step_ = steps_;
    freeze_requested_ = false;
    warmup_bytes_sent_ = bytes_sent();
    return {};
}

Status FusedOptimizer::mask_zero_variance(Bucket& bucket) {
    AlignedBuffer<std::uint32_t> mask(ceil_divide(bucket.v.size(), kWordElements));
    bool any = false;
    for (std::size_t i = 0; i < bucket.v.size(); ++i) {
        if (bucket.v[i] > 0) {
            mask[i / kWordElements] |= 1U << (i % kWordElements);
        } else {
            any = true;
            bucket.m[i] = 0; // where v has underflowed, m may be left over
        }
    }
    return bucket.allreduce->set_mask(any ? mask.data() : nullptr);
}

Status FusedOptimizer::freeze() {
    if (!settings_.compresses()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "dense Adam and LAMB have no compression stage");
    }
    if (frozen() || freeze_requested_) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "already frozen, after step %llu",
                             static_cast<unsigned long long>(frozen() ? freeze_step_ : steps_));
    }
    if (steps_ == 0) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "no step yet: there is no variance to freeze");
    }
    request_freeze();
    return {};
}

/// With what is known now, for a caller to see; the next step changes over.
void FusedOptimizer::request_freeze() {
    freeze_requested_ = true;
    masked_ = 0;
    for (const Bucket& bucket : buckets_) {
        if (bucket.compresses) masked_ += static_cast<std::uint64_t>(std::ranges::count(bucket.v.view(), 0.0F));
    }
}

/// Added up in order: the same on every rank and with any number of threads.
double FusedOptimizer::variance_norm() const {
    double norm = 0;
    for (const Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        for (const float v : bucket.v.view()) norm += v;
    }
    return norm;
}

// ---------------------------------------------------------------------------------------- what kinds build on ----

void FusedOptimizer::set_updates(std::uint64_t v_updates) {
    std::ranges::transform(settings_.groups, updates_.begin(), [&](const onebit_param_group_t& group) {
        return update_of(group, config().bias_correction != 0, t(), v_updates);
    });
}

void FusedOptimizer::update_with_adam(Bucket& bucket, float factor, std::uint64_t v_updates) {
    set_updates(v_updates);
    bucket.layout.for_each_segment(threads_, [&](const Segment& segment) {
        const std::size_t at = segment.offset;
        kernels_->adam(bucket.sum.data() + at, factor, bucket.m.data() + at, bucket.v.data() + at, segment.parameters(),
                       segment.count, betas(segment), update(segment));
        segment.write_copy(*kernels_);
    });
}

void FusedOptimizer::freeze_variance(Bucket& bucket, std::uint64_t v_updates) {
    set_updates(v_updates);
    bucket.precondition = std::move(bucket.v);
    bucket.layout.for_each_segment(threads_, [&](const Segment& segment) {
        float* const at = bucket.precondition.data() + segment.offset;
        kernels_->invert_denominator(at, segment.count, update(segment), at);
    });
}

void FusedOptimizer::read_momentum(const Bucket& bucket, const Block& block, float* m) const {
    if (bucket.m.size() > 0) {
        std::memcpy(m, bucket.m.data() + block.begin(), block.count() * sizeof(float));
    } else {
        bucket.allreduce->flat().last_result(block, m);
    }
}

Status FusedOptimizer::exchange_momentum(Bucket& bucket, const ValueSource& source, const ValueSink* sink) {
    const Status exchanged = bucket.allreduce->run_compressed(source, sink);
    if (exchanged.code() == ONEBIT_ERROR_NONFINITE) bucket.m = AlignedBuffer<float>(bucket.layout.count());
    return exchanged;
}

// --------------------------------------------------------------------------------------------------- settings ----

Status FusedOptimizer::set_gradients(std::size_t number, const void* gradients) {
    if (number >= tensors_.size()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensor: %zu, but there are %zu", number, tensors_.size());
    }
    Tensor& tensor = tensors_[number];
    ONEBIT_RETURN_IF_ERROR(check_alignment(tensor, "gradients", gradients, tensor.gradient_type));
    tensor.gradients = gradients;
    return {};
}

Status FusedOptimizer::set_lr(double lr) {
    ONEBIT_RETURN_IF_ERROR(check_lr("lr", lr));
    for (onebit_param_group_t& group : settings_.groups) group.lr = lr;
    return {};
}

Status FusedOptimizer::set_group_lr(std::size_t group, double lr) {
    if (group >= settings_.groups.size()) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "group: %zu, but there are %zu", group,
                             settings_.groups.size());
    }
    ONEBIT_RETURN_IF_ERROR(check_lr("lr", lr));
    settings_.groups[group].lr = lr;
    return {};
}

Status FusedOptimizer::set_gradient_scale(double scale) {
    // As the float it is used as, and its inverse too.
    if (!(scale > 0 && std::isnormal(static_cast<float>(scale)) && std::isnormal(static_cast<float>(1 / scale)))) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "scale: %g is not a float > 0", scale);
    }
    settings_.gradient_scale = scale;
    return {};
}

// ------------------------------------------------------------------------------------------------------ error ----

Status FusedOptimizer::reset_error() {
    for (Bucket& bucket : buckets_) ONEBIT_RETURN_IF_ERROR(bucket.allreduce->reset());
    return {};
}

Status FusedOptimizer::get_error(float* worker, float* server) const {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    for (const Bucket& bucket : buckets_) {
        const Chunk served = bucket.allreduce->server_chunk();
        std::vector<float> worker_error(bucket.layout.count());
        std::vector<float> server_error(bucket.layout.count());
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->get_error(worker_error.data(), server_error.data() + served.begin));
        for (const Segment& segment : bucket.layout.segments()) {
            const std::size_t to = segment.tensor->offset + segment.begin;
            const auto put = [&](const std::vector<float>& error, float* all) {
                if (all != nullptr) std::memcpy(all + to, error.data() + segment.offset, segment.count * sizeof(float));
            };
            put(worker_error, worker);
            put(server_error, server);
        }
    }
    return {};
}

// ------------------------------------------------------------------------------------------------------- info ----

std::uint64_t FusedOptimizer::bytes_sent() const {
    std::uint64_t bytes = norm_ == nullptr ? 0 : norm_->bytes_sent();
    for (const Bucket& bucket : buckets_) bytes += bucket.allreduce->channel().bytes_sent();
    return bytes;
}

void FusedOptimizer::fill_info(onebit_optimizer_info_t* info) const {
    info->frozen = frozen() || freeze_requested_ ? 1 : 0;
    info->steps = steps_;
    info->skipped = skipped_;
    info->freeze_step = freeze_requested_ ? steps_ : freeze_step_;
    info->count = tensors_.back().offset + tensors_.back().count;
    info->masked = masked_;
    info->exact_rounds = exact_rounds_;
    info->compressed_rounds = compressed_rounds_;
    info->warmup_bytes_sent = frozen() ? warmup_bytes_sent_ : bytes_sent();
    info->compressed_bytes_sent = bytes_sent() - info->warmup_bytes_sent;
    info->state_bytes = own_bytes() + (norm_ == nullptr ? 0 : norm_->bytes());
    for (const Bucket& bucket : buckets_) {
        onebit_allreduce_info_t exchange = ONEBIT_ALLREDUCE_INFO_INIT;
        bucket.allreduce->fill_info(&exchange);
        info->state_bytes += bucket.bytes() + exchange.state_bytes + exchange.workspace_bytes;
    }
    info->grad_norm = grad_norm_;
}

} // namespace onebit
