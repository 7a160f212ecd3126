// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/variance_follower.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optim/saved_state.hpp"

namespace onebit {
namespace {

/// The most floats of a tensor's sketch on the wire. The error of a mean square is then 12.5 % (one standard
/// deviation); the running mean leaves a sixth of this error.
constexpr std::size_t kMostFloats = 128;

/// A smaller share of the variance in D is rounding.
constexpr double kLeastShare = 0x1p-10;
/// Bounds of a ratio.
constexpr double kMostRatio = 0x1p100;

/// By multiplications only: the result doesn't depend on a machine's pow().
double power(double base, std::uint64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent /= 2, base *= base) {
        if (exponent % 2 != 0) result *= base;
    }
    return result;
}

std::size_t floats_of(const Tensor& tensor) {
    return std::min(tensor.count, kMostFloats);
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
      adapts_(settings.exchanges_updates()),
      ranks_(buckets.front().allreduce->channel().size()),
      followed_(num_tensors),
      numbers_(1 + num_tensors),
      sums_(std::move(sums)),
      sketches_(most_runs(buckets) * kSketchBuckets) {
    take_groups(settings.groups, buckets);
}

void VarianceFollower::take_groups(const std::vector<onebit_param_group_t>& groups,
                                   const std::vector<Bucket>& buckets) {
    for (const Bucket& bucket : buckets) {
        for (const Tensor* tensor : bucket.layout.tensors()) {
            const onebit_param_group_t& group = groups[tensor->group];
            Followed& its = followed_[tensor->number];
            its.eps = double{update_of(group, false, 0, 0).eps};
            its.beta2 = group.beta2;
            its.compresses = bucket.compresses;
        }
    }
}

Status VarianceFollower::create(Communicator& communicator, const Settings& settings, std::size_t num_tensors,
                                const std::vector<Bucket>& buckets, std::unique_ptr<VarianceFollower>* follower) {
    std::size_t floats = 0;
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) floats += floats_of(*tensor);
    }
    std::unique_ptr<RankSum> sums;
    ONEBIT_RETURN_IF_ERROR(RankSum::create(communicator, floats, "the variances", &sums));
    return communicator.agree(catch_exceptions([&] {
        follower->reset(new VarianceFollower(settings, num_tensors, buckets, std::move(sums)));
        return Status();
    }));
}

// ------------------------------------------------------------------------------------------ what is frozen ----

void VarianceFollower::look_at(const std::vector<Bucket>& buckets) {
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) {
            followed_[tensor->number].shares = followed_[tensor->number].squares = 0;
        }
        read_by_tensor(bucket, bucket.precondition, [&](std::size_t i, std::span<const float> precondition) {
            Followed& its = followed_[bucket.layout.tensors()[i]->number];
            for (const float p : precondition) {
                const double share = 1 - its.eps * double{p};
                if (p <= 0 || share < kLeastShare) continue; // masked, or D is only eps
                its.shares += share;
                its.squares += share * share;
            }
        });
        for (const Tensor* tensor : bucket.layout.tensors()) update_stretch(tensor->number);
    }
}

void VarianceFollower::loaded(bool frozen, std::uint64_t steps) {
    for (Followed& its : followed_) {
        its.shares = its.squares = 0;
        its.stretch = 1;
    }
    if (frozen && last_step() <= 0) last_step() = static_cast<double>(steps); // of one that measured nothing
}

void VarianceFollower::restart(std::uint64_t step) {
    std::ranges::fill(numbers_, 1);
    last_step() = static_cast<double>(step);
}

// -------------------------------------------------------------------------------------------- a measurement ----

bool VarianceFollower::measures_in(std::uint64_t step) const {
    double least = 1; // stretch of any tensor
    for (const Followed& its : followed_) least = std::min(least, its.stretch);
    const double interval = std::max(1.0, static_cast<double>(interval_) * (adapts_ ? least : 1));
    return static_cast<double>(step) - last_step() >= std::floor(interval);
}

Status VarianceFollower::measure(const std::vector<Bucket>& buckets, const Passes::FactorOf& factor) {
    std::span<float> sums = sums_->values();
    std::ranges::fill(sums, 0.0F);
    for (const Bucket& bucket : buckets) {
        if (bucket.compresses) sums = add_sketches(bucket, factor, sums);
    }
    return sums_->run();
}

void VarianceFollower::take(const std::vector<Bucket>& buckets, std::uint64_t step) {
    std::span<const float> sketches = sums_->values();
    const auto steps = step - static_cast<std::uint64_t>(last_step());
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        for (const Tensor* tensor : bucket.layout.tensors()) {
            double squares = 0; // of the sum over the ranks
            for (const float sum : sketches.first(floats_of(*tensor))) squares += double{sum} * double{sum};
            take(tensor->number, squares / (double(ranks_) * ranks_), steps);
            sketches = sketches.subspan(floats_of(*tensor));
        }
    }
    last_step() = static_cast<double>(step);
}

/// Adds the sketches of a bucket's tensors, one after the other. Returns the rest of the sums.
std::span<float> VarianceFollower::add_sketches(const Bucket& bucket, const Passes::FactorOf& factor,
                                                std::span<float> sums) {
    const std::span<const std::size_t> runs = bucket.layout.runs();
    const std::span<const Segment> segments = bucket.layout.segments();
    const std::span<float> sketches(sketches_.data(), (runs.size() - 1) * kSketchBuckets);
    bucket.passes->sketch_weighted(factor, sketches);
    for (std::size_t run = 0; run + 1 < runs.size(); ++run) {
        const std::size_t floats = floats_of(*segments[runs[run]].tensor);
        const std::span<const float> sketch = sketches.subspan(run * kSketchBuckets, kSketchBuckets);
        for (std::size_t i = 0; i < kSketchBuckets; ++i) sums[i % floats] += sketch[i];
        const bool is_last_of_tensor = runs[run + 1] == segments.size() || segments[runs[run + 1]].begin == 0;
        if (is_last_of_tensor) sums = sums.subspan(floats);
    }
    return sums;
}

/// `squares`: the sum of (g/D)^2 over the tensor, with the followed D. `steps`: since the last measurement. A single
/// measurement doubles a ratio at most; but a return to the frozen variance counts at once.
void VarianceFollower::take(std::size_t tensor, double squares, std::uint64_t steps) {
    const Followed& its = followed_[tensor];
    if (!(its.squares > 0) || !std::isfinite(squares)) return; // eps is all of D, or the sketch has overflowed
    const double counts = 1 - power(its.beta2, steps);         // of a measurement
    const double before = ratio(tensor);
    const double now = squares / its.squares / (factor(tensor) * factor(tensor));
    const double most = std::max(before * (1 + 1 / counts), 1.0);
    ratio_at(tensor) = std::clamp(before + counts * (std::min(now, most) - before), 1 / kMostRatio, kMostRatio);
    update_stretch(tensor);
}

// ---------------------------------------------------------------------------------------- what is known now ----

/// The mean over elements, weighted by the variance's share in their D.
void VarianceFollower::update_stretch(std::size_t tensor) {
    Followed& its = followed_[tensor];
    const double share = its.shares > 0 ? its.squares / its.shares : 0;
    its.stretch = 1 + (std::sqrt(ratio(tensor)) - 1) * share;
}

std::size_t VarianceFollower::most_grown() const {
    std::size_t most = 0;
    for (std::size_t i = 1; i < followed_.size(); ++i) {
        if (!followed_[i].compresses) continue;
        if (!followed_[most].compresses || growth(i) > growth(most)) most = i;
    }
    return most;
}

Status VarianceFollower::check_numbers(std::uint64_t steps) const {
    const double last = last_step();
    const bool is_step = last >= 0 && last <= static_cast<double>(steps) && last == std::floor(last);
    ONEBIT_RETURN_IF_ERROR(check_state(is_step, "step of the last measurement", last));
    for (std::size_t tensor = 0; tensor < followed_.size(); ++tensor) {
        const double its = ratio_at(tensor);
        const bool possible = its == 0 || (its >= 1 / kMostRatio && its <= kMostRatio);
        ONEBIT_RETURN_IF_ERROR(check_state(possible, "change of a variance", its));
    }
    return {};
}

std::size_t VarianceFollower::bytes() const {
    return followed_.size() * (sizeof(Followed) + sizeof(double)) + sums_->bytes() + sketches_.bytes();
}

} // namespace onebit
