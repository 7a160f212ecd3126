// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/fused_optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "numeric/mean.hpp"

namespace onebit {
namespace {

/// The config of a bucket's exchange. The ranks have agreed on all checks before the optimizer runs the exchange.
/// The config lives no longer than the settings.
onebit_allreduce_config_t exchange_config(const Settings& settings, std::size_t count, onebit_algorithm_t algorithm) {
    const onebit_optimizer_config_t& config = settings.config;
    onebit_allreduce_config_t exchange = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    exchange.algorithm = algorithm;
    if (algorithm != ONEBIT_ALGORITHM_DENSE) {
        exchange.codec = config.codec;
        exchange.kept = config.kept;
        exchange.value_bits = config.value_bits;
        exchange.error_type = config.error_type;
    }
    if (algorithm == ONEBIT_ALGORITHM_LEVELS) {
        exchange.levels = settings.levels.data();
        exchange.num_levels = static_cast<std::uint32_t>(settings.levels.size());
    }
    exchange.scale = config.scale;
    exchange.group = config.group == ONEBIT_GROUP_TENSOR ? ONEBIT_GROUP_BUFFER : config.group;
    exchange.check = ONEBIT_CHECK_NONE;
    exchange.threads = config.threads;
    exchange.memory = config.memory;
    exchange.stream = config.stream;
    return exchange;
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

FusedOptimizer::FusedOptimizer(Settings settings, std::vector<Tensor> tensors)
    : settings_(std::move(settings)), tensors_(std::move(tensors)) {
    by_group_.betas.resize(settings_.groups.size());
    by_group_.updates.resize(settings_.groups.size());
}

FusedOptimizer::~FusedOptimizer() {
    for (Bucket& bucket : buckets_) {
        if (!bucket.allreduce->in_flight()) continue; // a sum that never finished may still be written to
        bucket.sum.leak();
        bucket.masked_gradients.leak();
    }
}

Status FusedOptimizer::prepare(Communicator& communicator, bool keep_results) {
    by_group_.exchange_updates = exchanges_updates();
    coming_.groups = settings_.groups; // all that a change of settings needs
    ranks_ = communicator.size();
    take_betas();
    std::vector<const Tensor*> compressed;
    std::vector<const Tensor*> exact;
    for (const Tensor& tensor : tensors_) {
        const bool compresses = settings_.compresses() && settings_.groups[tensor.group].no_compress == 0;
        (compresses ? compressed : exact).push_back(&tensor);
    }
    if (settings_.compresses()) {
        ONEBIT_RETURN_IF_ERROR(add_compressing_buckets(communicator, compressed, keep_results));
    }
    if (!exact.empty()) {
        ONEBIT_RETURN_IF_ERROR(add_buckets(communicator, exact, ONEBIT_ALGORITHM_DENSE, "exact for ever", false));
    }
    if (has_buckets()) { // as a backward pass finishes them
        std::ranges::stable_sort(buckets_, std::ranges::greater(),
                                 [](const Bucket& bucket) { return bucket.layout.tensors().front()->number; });
    }

    log_ = communicator.log();
    const Allreduce& first = *buckets_.front().allreduce;
    kernels_ = &optim_kernels(first.codec().kernels());
    threads_ = first.plan().threads;
    ONEBIT_RETURN_IF_ERROR(communicator.agree(catch_exceptions([&] {
        const Status seated = take_seats(communicator.groups());
        return seated.ok() ? make_room() : seated;
    })));
    if (settings_.measures_variances()) {
        ONEBIT_RETURN_IF_ERROR(
            VarianceFollower::create(communicator, settings_, tensors_.size(), buckets_, &follower_));
    }
    if (config().max_grad_norm <= 0) return {};
    std::size_t most_segments = 0;
    for (const Bucket& bucket : buckets_) most_segments = std::max(most_segments, bucket.layout.segments().size());
    return GradientNorm::create(communicator, most_segments, &norm_);
}

/// Takes the seats of all ranks, which say what their errors are of.
Status FusedOptimizer::take_seats(const NodeGroups& nodes) {
    const onebit_algorithm_t form = exchange_algorithm();
    seats_.resize(static_cast<std::size_t>(ranks_));
    if (form == ONEBIT_ALGORITHM_TWO_LEVEL) seats_ = seats_of(nodes);
    if (form != ONEBIT_ALGORITHM_LEVELS) return {};
    const auto compressing = std::ranges::find_if(buckets_, &Bucket::compresses);
    const NodeGroups groups = NodeGroups::of(compressing->allreduce->plan().levels.lower.front().exchange_of_rank);
    if (groups.objection() != nullptr) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "config.levels[0].color makes %zu groups of %zu of %d ranks: an optimizer needs several "
                             "groups of several ranks",
                             groups.nodes, groups.places, ranks_);
    }
    seats_ = seats_of(groups);
    return {};
}

/// All buckets get the same form, because a save has one form. Where a node has shared memory for some buckets only,
/// all buckets are flat.
Status FusedOptimizer::add_compressing_buckets(Communicator& communicator, const std::vector<const Tensor*>& tensors,
                                               bool keep_results) {
    onebit_algorithm_t form = config().algorithm;
    std::string reason; // of a choice
    if (!settings_.levels.empty()) {
        form = ONEBIT_ALGORITHM_LEVELS;
    } else if (form == ONEBIT_ALGORITHM_AUTO) {
        std::uint64_t all = 0;
        std::uint64_t largest = settings_.bucket_size();
        for (const Tensor* tensor : tensors) {
            all += tensor->count;
            largest = std::max<std::uint64_t>(largest, tensor->count);
        }
        const std::uint64_t count = has_buckets() ? std::min(all, largest) : all;
        ONEBIT_RETURN_IF_ERROR(choose_exchange(communicator, config().memory, config().codec, count, &form, &reason));
    }
    const char* const why = reason.empty() ? nullptr : reason.c_str();
    ONEBIT_RETURN_IF_ERROR(add_buckets(communicator, tensors, form, why, keep_results));
    const auto form_of = [](const Bucket& bucket) { return bucket.allreduce->plan().algorithm; };
    const auto fallen_back =
        std::ranges::find_if(buckets_, [&](const Bucket& bucket) { return form_of(bucket) != form; });
    const Bucket& telling = fallen_back == buckets_.end() ? buckets_.front() : *fallen_back;
    std::snprintf(exchange_reason_, sizeof(exchange_reason_), "%s", telling.allreduce->plan().reason.c_str());
    const bool mixed = std::ranges::any_of(buckets_, [&](const Bucket& b) { return form_of(b) != form_of(telling); });
    if (!mixed) return {};
    buckets_.clear();
    return add_buckets(communicator, tensors, ONEBIT_ALGORITHM_PIPELINED, exchange_reason_, keep_results);
}

onebit_algorithm_t FusedOptimizer::exchange_algorithm() const {
    const auto compressing = std::ranges::find_if(buckets_, &Bucket::compresses);
    return compressing == buckets_.end() ? ONEBIT_ALGORITHM_DENSE : compressing->allreduce->plan().algorithm;
}

Status FusedOptimizer::add_buckets(Communicator& communicator, const std::vector<const Tensor*>& tensors,
                                   onebit_algorithm_t algorithm, const char* why, bool keep_results) {
    const bool compresses = algorithm != ONEBIT_ALGORITHM_DENSE;
    const auto ranks = static_cast<std::size_t>(communicator.size());
    for (std::vector<const Tensor*>& cut : cut_into_buckets(tensors, settings_.bucket_size(), ranks)) {
        Bucket bucket;
        bucket.compresses = compresses;
        Status own = catch_exceptions([&] {
            bucket.layout = Layout(std::move(cut));
            return Status();
        });
        const std::size_t count = bucket.layout.count();
        if (own.ok() && count < ranks) {
            own = Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "tensors: %zu elements %s are fewer than the %d ranks",
                                count, compresses ? "to be compressed" : "in all", communicator.size());
        }
        const onebit_allreduce_config_t exchange = exchange_config(settings_, count, algorithm);
        const bool tentative = has_buckets() || (compresses && encoders_may_look());
        ONEBIT_RETURN_IF_ERROR(Allreduce::create(communicator, &exchange, own, &bucket.allreduce,
                                                 {.keep_results = keep_results || tentative,
                                                  .tentative_calls = tentative,
                                                  .exact_sums = !has_buckets(),
                                                  .sources = true},
                                                 why));
        bucket.allreduce->tell(communicator, "allreduce");
        buckets_.push_back(std::move(bucket));
    }
    return {};
}

/// Allocates what is needed before the freeze, now that the buckets stay where they are.
Status FusedOptimizer::make_room() {
    started_ = std::make_unique<StartedStep>([this](const Status& refusal) { return step_unless(refusal); });
    ready_.resize(tensors_.size());
    bucket_of_.resize(tensors_.size());
    set_hashes_.resize(1 + 2 * tensors_.size());
    for (Bucket& bucket : buckets_) {
        bucket.layout.cut(bucket.compresses ? bucket.allreduce->delivery().chunks()
                                            : partition(bucket.layout.count(), static_cast<std::size_t>(ranks_)));
        bucket.passes = make_passes(bucket);
        if (needs_sum(bucket, false)) ONEBIT_RETURN_IF_ERROR(make_sum(bucket));
        bucket.m = AlignedBuffer<float>(bucket.layout.count(), memory());
        bucket.v = AlignedBuffer<float>(bucket.layout.count(), memory());
        if (bucket.compresses) bucket.source = compresses_gradients() ? gradients_of(bucket) : make_source(bucket);
        for (const Tensor* tensor : bucket.layout.tensors()) {
            bucket_of_[tensor->number] = static_cast<std::size_t>(&bucket - buckets_.data());
        }
    }
    if (!settings_.freezes()) return {};
    greatest_beta2_ = greatest_beta2(settings_.groups);
    rates_.resize(settings_.groups.size());
    for (const Bucket& bucket : buckets_) {
        if (!bucket.compresses) continue;
        quantities_.resize(quantities_.size() + bucket.layout.tensors().size());
        add_freeze_quantities(bucket, &quantities_);
    }
    freeze_rule_ = make_freeze_rule(config(), greatest_beta2_, rates_.size(), quantities_.size());
    if (!exchanges_updates() && config().codec == ONEBIT_CODEC_SIGN) { // whose elements share their magnitude
        shared_scales_ = std::make_unique<SharedScales>(buckets_, config().group, memory());
    }
    return {};
}

std::unique_ptr<ValueSource> FusedOptimizer::gradients_of(Bucket& bucket) const {
    return bucket.passes->make_round_source([this](const Tensor& tensor) { return own_factor(tensor); });
}

std::unique_ptr<Passes> FusedOptimizer::make_passes(Bucket& bucket) const {
    if (config().memory == ONEBIT_MEMORY_HOST) return make_host_passes(bucket, by_group_, *kernels_, threads_);
    return make_cuda_passes(bucket, by_group_, memory(), config().stream,
                            {.clipping = config().max_grad_norm > 0,
                             .measuring = bucket.compresses && settings_.measures_variances(),
                             .norms = needs_norms(),
                             .refreshing = refreshes_variance(),
                             .missing_gradients = config().missing_gradients != 0});
}

/// What broke an exchange breaks the optimizer.
Status FusedOptimizer::check_usable() const {
    for (const Bucket& bucket : buckets_) ONEBIT_RETURN_IF_ERROR(bucket.allreduce->check_not_broken());
    if (follower_ != nullptr) ONEBIT_RETURN_IF_ERROR(follower_->broken());
    return norm_ == nullptr ? Status() : norm_->broken();
}

/// The same, and the coming step has not begun: no exchange is under way, and none relies on the present settings.
Status FusedOptimizer::check_between_steps() const {
    ONEBIT_RETURN_IF_ERROR(check_usable());
    ONEBIT_RETURN_IF_ERROR(check_not_started());
    if (!begun_) return {};
    return Status::error(ONEBIT_ERROR_BUSY,
                         "a step has begun with onebit_optimizer_grad_ready: call "
                         "onebit_optimizer_step or onebit_optimizer_cancel_step first");
}

// ---------------------------------------------------------------------------------------- what kinds build on ----

void FusedOptimizer::set_updates(std::uint64_t v_updates) {
    std::ranges::transform(settings_.groups, by_group_.updates.begin(), [&](const onebit_param_group_t& group) {
        return update_of(group, config().bias_correction != 0, t(), v_updates);
    });
}

float FusedOptimizer::own_factor(const Tensor& tensor) const {
    const bool follows = follower_ != nullptr && frozen();
    return nearest_finite(follows ? factor_ * follower_->factor(tensor.number) : factor_);
}

float FusedOptimizer::average_factor(const Bucket& bucket) const {
    if (!needs_sum(bucket, frozen())) return 1; // the encoded values contain the factor
    return static_cast<float>(factor_ * (1.0 / buckets_.front().allreduce->channel().size()));
}

void FusedOptimizer::update_with_adam(Bucket& bucket, std::uint64_t v_updates) {
    set_updates(v_updates);
    bucket.passes->adam(average_factor(bucket));
}

Status FusedOptimizer::make_sum(Bucket& bucket) const {
    const bool is_there = bucket.sum.size() > 0;
    if (!is_there) bucket.sum = AlignedBuffer<float>(bucket.layout.count(), memory());
    const bool planned = is_there && bucket.allreduce->has_planned_sum();
    return planned ? Status() : plan_sum(bucket, bucket.sum);
}

Status FusedOptimizer::plan_sum(Bucket& bucket, AlignedBuffer<float>& values) const {
    return has_buckets() ? bucket.allreduce->plan_sum(values.data()) : bucket.allreduce->make_sums();
}

void FusedOptimizer::unplan_sum(Bucket& bucket) const {
    (void)bucket.allreduce->plan_sum(nullptr); // can't fail
    bucket.allreduce->drop_sums();
}

AlignedBuffer<float> FusedOptimizer::take_sum(Bucket& bucket) const {
    (void)bucket.allreduce->plan_sum(nullptr); // which would be read from there
    return std::move(bucket.sum);
}

void FusedOptimizer::drop_sum(Bucket& bucket) const {
    unplan_sum(bucket);
    if (!bucket.passes->keeps_sum()) bucket.sum = {};
}

Status FusedOptimizer::sum_over_ranks(Bucket& bucket) {
    ONEBIT_RETURN_IF_ERROR(begin_sum(bucket, bucket.sum));
    return finish_exchanges();
}

void FusedOptimizer::invert_variance(Bucket& bucket, std::uint64_t v_updates, bool stops_masked) {
    if (stops_masked && !bucket.allreduce->delivery().mask().empty()) {
        bucket.passes->edit(bucket.precondition, [](std::size_t, std::span<float> part) { // 1 / infinity
            std::ranges::replace_if(
                part, [](float v) { return v <= 0; }, std::numeric_limits<float>::infinity());
        });
    }
    set_updates(v_updates);
    bucket.passes->invert_denominator();
}

void FusedOptimizer::freeze_variance(Bucket& bucket, bool stops_masked) {
    bucket.precondition = std::move(bucket.v);
    invert_variance(bucket, exact_rounds_, stops_masked);
    if (exchanges_updates()) bucket.passes->weigh_momenta();
}

// ------------------------------------------------------------------------------------------------------ error ----

Status FusedOptimizer::reset_error() {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    for (Bucket& bucket : buckets_) {
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->reset());
        bucket.masked_gradients.fill_zero();
    }
    return {};
}

Status FusedOptimizer::get_error(float* worker, float* server) const {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
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
    if (follower_ != nullptr) bytes += follower_->bytes_sent();
    for (const Bucket& bucket : buckets_) bytes += bucket.allreduce->bytes_sent();
    return bytes;
}

void FusedOptimizer::fill_info(onebit_optimizer_info_t* info) const {
    info->frozen = frozen() || freeze_requested_ ? 1 : 0;
    info->steps = steps_;
    info->skipped = skipped_;
    info->cancelled = cancelled_;
    info->freeze_step = freeze_requested_ ? steps_ : freeze_step_;
    info->count = tensors_.back().offset + tensors_.back().count;
    info->masked = masked_;
    info->exact_rounds = exact_rounds_;
    info->compressed_rounds = compressed_rounds_;
    const bool compresses_now = frozen() || compresses_gradients();
    info->compressed_bytes_sent = compressed_bytes_sent_ + (compresses_now ? bytes_sent() - bytes_sent_at_freeze_ : 0);
    info->warmup_bytes_sent = bytes_sent() - info->compressed_bytes_sent;
    info->state_bytes = own_bytes() + (norm_ == nullptr ? 0 : norm_->bytes());
    if (follower_ != nullptr) info->state_bytes += follower_->bytes();
    if (shared_scales_ != nullptr) info->state_bytes += shared_scales_->bytes();
    for (const Bucket& bucket : buckets_) {
        onebit_allreduce_info_t exchange = ONEBIT_ALLREDUCE_INFO_INIT;
        bucket.allreduce->fill_info(&exchange);
        info->state_bytes += bucket.bytes() + exchange.state_bytes + exchange.workspace_bytes;
    }
    info->algorithm = exchange_algorithm();
    std::snprintf(info->reason, sizeof(info->reason), "%s", exchange_reason_);
    info->grad_norm = grad_norm_;
    info->thaws = thaws_;
    const std::size_t tensor = follower_ != nullptr ? follower_->most_grown() : 0;
    if (follower_ != nullptr && (frozen() || follower_->growth(tensor) > config().thaw_ratio)) {
        info->variance_ratio = follower_->growth(tensor);
        info->variance_tensor = tensor;
    }
    if (shared_scales_ != nullptr && frozen()) {
        info->step_ratio = shared_scales_->step_ratio();
        info->step_tensor = shared_scales_->tensor();
    }
    if (freeze_rule_ == nullptr || info->frozen != 0) return;
    const FreezeWait& wait = freeze_rule_->wait();
    info->freeze_wait = wait.what;
    info->freeze_tensor = static_cast<std::uint32_t>(wait.tensor);
    info->freeze_ratio = wait.ratio;
}

} // namespace onebit
