// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/variance_follower.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "core/mean.hpp"

namespace onebit {
namespace {

/// Floats of a tensor's sketch on the wire: its mean square comes out within 9 % (one standard deviation), of which the
/// running mean leaves a sixth.
constexpr std::size_t kFollowBuckets = 256;
static_assert(kSketchBuckets % kFollowBuckets == 0);

/// The most that one measurement counts, in ratios: a single outlier doesn't pass for a change.
constexpr double kMostAtOnce = 64;
/// Bounds of a ratio's logarithm.
constexpr double kMostLog = 80;

std::size_t compressed_tensors(const std::vector<Bucket>& buckets) {
    std::size_t tensors = 0;
    for (const Bucket& bucket : buckets) tensors += bucket.compresses ? bucket.layout.tensors().size() : 0;
    return tensors;
}

std::size_t most_runs(const std::vector<Bucket>& buckets) {
    std::size_t runs = 0;
    for (const Bucket& bucket : buckets) {
        if (bucket.compresses) runs = std::max(runs, bucket.layout.runs().size() - 1);
    }
    return runs;
}

} // namespace

VarianceFollower::VarianceFollower(const Settings& settings, std::size_t num_tensors,
                                   const std::vector<Bucket>& buckets, std::unique_ptr<RankSum> sums)
    : interval_(settings.config.follow_interval),
      ranks_(buckets.front().allreduce->channel().size()),
      followed_(num_tensors),
      log_ratios_(num_tensors),
      eps_(num_tensors),
      sums_(std::move(sums)),
      sketches_(most_runs(buckets) * kSketchBuckets) {
    for (const Bucket& bucket : buckets) {
        for (const Tensor* tensor : bucket.layout.tensors()) {
            const onebit_param_group_t& group = settings.groups[tensor->group];
            eps_[tensor->number] = double{update_of(group, false, 0, 0).eps};
            followed_[tensor->number].forgets = 1 - std::pow(group.beta2, static_cast<double>(interval_));
        }
    }
}

Status VarianceFollower::create(Communicator& communicator, const Settings& settings, std::size_t num_tensors,
                                const std::vector<Bucket>& buckets, std::unique_ptr<VarianceFollower>* follower) {
    std::unique_ptr<RankSum> sums;
    ONEBIT_RETURN_IF_ERROR(
        RankSum::create(communicator, compressed_tensors(buckets) * kFollowBuckets, "the variances", &sums));
    return communicator.agree(catch_exceptions([&] {
        follower->reset(new VarianceFollower(settings, num_tensors, buckets, std::move(sums)));
        return Status();
    }));
}

void VarianceFollower::look_at(const std::vector<Bucket>& buckets) {
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) {
            followed_[tensor->number].shares = followed_[tensor->number].squares = 0;
        }
        read_by_tensor(bucket, bucket.precondition, [&](std::size_t i, std::span<const float> precondition) {
            const std::size_t tensor = bucket.layout.tensors()[i]->number;
            for (const float p : precondition) {
                if (p <= 0) continue; // masked
                const double share = std::max(1 - eps_[tensor] * double{p}, 0.0);
                followed_[tensor].shares += share;
                followed_[tensor].squares += share * share;
            }
        });
        for (const Tensor* tensor : bucket.layout.tensors()) update_factor(tensor->number);
    }
}

bool VarianceFollower::is_possible(double log_ratio) {
    return std::abs(log_ratio) <= kMostLog;
}

void VarianceFollower::restart() {
    std::ranges::fill(log_ratios_, 0);
}

double VarianceFollower::ratio(std::size_t tensor) const {
    return std::exp(log_ratios_[tensor]);
}

/// D over sqrt(ratio v) + eps, of elements as the variance has a share in their D.
void VarianceFollower::update_factor(std::size_t tensor) {
    Followed& its = followed_[tensor];
    const double share = its.shares > 0 ? its.squares / its.shares : 0;
    its.factor = nearest_finite(1 / (1 + (std::sqrt(ratio(tensor)) - 1) * share));
}

Status VarianceFollower::measure(const std::vector<Bucket>& buckets, float factor) {
    const auto factor_of = [&](const Tensor& tensor) { return factor * followed_[tensor.number].factor; };
    const std::span<float> sums = sums_->values();
    std::ranges::fill(sums, 0.0F);
    std::size_t first = 0; // of the bucket's first tensor in the sums
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        const std::span<const std::size_t> runs = bucket.layout.runs();
        const std::size_t floats = (runs.size() - 1) * kSketchBuckets;
        bucket.passes->sketch_weighted(factor_of, {sketches_.data(), floats});
        std::size_t at = first;
        for (std::size_t run = 0; run + 1 < runs.size(); ++run) {
            const bool next_tensor = run > 0 && bucket.layout.segments()[runs[run]].begin == 0;
            if (next_tensor) at += kFollowBuckets;
            const float* const sketch = sketches_.data() + run * kSketchBuckets;
            for (std::size_t i = 0; i < kSketchBuckets; ++i) sums[at + i % kFollowBuckets] += sketch[i];
        }
        first += bucket.layout.tensors().size() * kFollowBuckets;
    }
    ONEBIT_RETURN_IF_ERROR(sums_->run());
    const float* sketch = sums.data();
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) {
            double squares = 0; // of the sum over the ranks
            for (std::size_t i = 0; i < kFollowBuckets; ++i) squares += double{sketch[i]} * double{sketch[i]};
            sketch += kFollowBuckets;
            take(tensor->number, squares / (double(ranks_) * ranks_));
        }
    }
    return {};
}

/// `squares`: the sum of (g/D)^2 with D as it is followed.
void VarianceFollower::take(std::size_t tensor, double squares) {
    Followed& its = followed_[tensor];
    if (!(its.squares > 0) || !std::isfinite(squares)) return; // eps is all of D, or the sketch has overflowed
    const double before = ratio(tensor);
    const double now = squares / its.squares / (double{its.factor} * double{its.factor});
    const double mean = before + its.forgets * (std::min(now, kMostAtOnce * before) - before);
    log_ratios_[tensor] = std::clamp(std::log(std::max(mean, DBL_MIN)), -kMostLog, kMostLog);
    update_factor(tensor);
}

std::size_t VarianceFollower::most_grown() const {
    return static_cast<std::size_t>(std::ranges::max_element(log_ratios_) - log_ratios_.begin());
}

std::size_t VarianceFollower::bytes() const {
    return followed_.size() * (sizeof(Followed) + 2 * sizeof(double)) + sums_->bytes() + sketches_.bytes();
}

} // namespace onebit
