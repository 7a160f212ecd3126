// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The elements that a freeze has masked, because they had had no gradient (docs/OPTIMIZERS.md, "Mask"): each rank adds
// their gradients up. At intervals, the elements that have had a gradient by then are admitted to the exchange.

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "optim/fused_optimizer.hpp"
#include "optim/kernels/arithmetic.hpp"

namespace onebit {
namespace {

/// A masked element, and its first values.
struct Newcomer {
    std::size_t element = 0; ///< of the layout
    float precondition = 0;
    float m = 0;
};

/// Writes one value of each newcomer to a bucket's array.
void put(const Bucket& bucket, AlignedBuffer<float>& fused, std::span<const Newcomer> newcomers,
         float Newcomer::*value) {
    auto next = newcomers.begin();
    const auto put_some = [&](std::size_t first, std::span<float> part) {
        for (; next != newcomers.end() && next->element < first + part.size(); ++next) {
            part[next->element - first] = *next.*value;
        }
    };
    bucket.passes->edit(fused, std::ref(put_some)); // too late to need memory
}

} // namespace

/// What a bucket needs to admit newcomers.
struct FusedOptimizer::Admission {
    bool has_newcomers = false; ///< or may have: some rank has gathered gradients
    std::vector<Newcomer> newcomers;
    AlignedBuffer<float> momenta; ///< where momenta are the message
    Allreduce::Mask mask;
};

void FusedOptimizer::make_room_for_masked(Bucket& bucket) const {
    if (!follows() || bucket.allreduce->delivery().mask().empty()) return;
    bucket.masked_gradients = AlignedBuffer<float>(bucket.layout.count(), memory());
}

void FusedOptimizer::gather_masked() {
    for (Bucket& bucket : buckets_) {
        if (bucket.masked_gradients.size() == 0) continue;
        bucket.passes->gather_masked([this](const Tensor& tensor) { return own_factor(tensor); });
    }
}

/// True at the first measurement of each period; periods count from the freeze.
bool FusedOptimizer::admits_now() const {
    if (std::ranges::all_of(buckets_, [](const Bucket& b) { return b.masked_gradients.size() == 0; })) return false;
    const std::uint64_t period = std::max<std::uint64_t>(steps_remembered(greatest_beta2_) / 4, 1);
    const auto periods_before = [&](std::uint64_t step) { return (step - freeze_step_) / period; };
    return periods_before(t()) > periods_before(follower_->last_measured());
}

/// After a step. Where a rank has no memory for it, no element is admitted this time. Collective; blocks.
Status FusedOptimizer::admit_newcomers() {
    Allreduce& first = *buckets_.front().allreduce;
    std::vector<Admission> admissions;
    ONEBIT_RETURN_IF_ERROR(find_buckets_with_newcomers(&admissions));
    if (std::ranges::none_of(admissions, &Admission::has_newcomers)) return {};
    const Status prepared = first.agree_now(catch_exceptions([&] { return prepare_admission(&admissions); }));
    if (prepared.ok()) ONEBIT_RETURN_IF_ERROR(sum_masked(admissions));
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        if (admissions[b].has_newcomers) unplan_sum(buckets_[b]);
    }
    if (!prepared.ok()) return first.broken();
    const Status found = first.agree_now(catch_exceptions([&] { return find_newcomers(&admissions); }));
    if (found.ok()) ONEBIT_RETURN_IF_ERROR(admit(admissions));
    for (Bucket& bucket : buckets_) bucket.masked_gradients.fill_zero();
    return found.ok() ? check_passes() : first.broken();
}

/// Finds the buckets in which any rank has gathered something. The 64th bucket and all later ones count as one.
Status FusedOptimizer::find_buckets_with_newcomers(std::vector<Admission>* admissions) {
    Told mine;
    const auto bit = [](std::size_t b) { return std::uint64_t{1} << std::min<std::size_t>(b, 63); };
    const Status own = catch_exceptions([&] {
        admissions->resize(buckets_.size());
        for (std::size_t b = 0; b < buckets_.size(); ++b) {
            buckets_[b].passes->read(buckets_[b].masked_gradients, [&](std::size_t, std::span<const float> part) {
                if (std::ranges::any_of(part, [](float sum) { return sum != 0; })) mine.value |= bit(b);
            });
        }
        return Status();
    });
    std::vector<Told> all;
    const Status gathered = buckets_.front().allreduce->gather_now(own, mine, &all);
    if (!gathered.ok()) {
        admissions->clear();
        return buckets_.front().allreduce->broken();
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const bool any = std::ranges::any_of(all, [&](const Told& told) { return (told.value & bit(b)) != 0; });
        (*admissions)[b].has_newcomers = any && buckets_[b].masked_gradients.size() > 0;
    }
    return {};
}

/// Allocates all memory that depends on no gradient.
Status FusedOptimizer::prepare_admission(std::vector<Admission>* admissions) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        if (!(*admissions)[b].has_newcomers) continue;
        ONEBIT_RETURN_IF_ERROR(plan_sum(bucket, bucket.masked_gradients));
        bucket.passes->make_room_for_momenta();
        if (bucket.m.size() == 0) (*admissions)[b].momenta = AlignedBuffer<float>(bucket.layout.count(), memory());
    }
    return {};
}

Status FusedOptimizer::sum_masked(const std::vector<Admission>& admissions) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        if (!admissions[b].has_newcomers) continue;
        ONEBIT_RETURN_IF_ERROR(begin_sum(buckets_[b], buckets_[b].masked_gradients));
    }
    return finish_exchanges();
}

/// Each newcomer begins as in Adam after a first gradient g, the mean of all ranks' sums: v = (1 - beta2) g^2,
/// m = (1 - beta1) g. The same on every rank.
Status FusedOptimizer::find_newcomers(std::vector<Admission>* admissions) {
    set_updates(exact_rounds_);
    const auto share = static_cast<float>(1.0 / buckets_.front().allreduce->channel().size());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const Bucket& bucket = buckets_[b];
        if (!(*admissions)[b].has_newcomers) continue;
        const std::span<const std::uint32_t> mask = bucket.allreduce->delivery().mask();
        AlignedBuffer<std::uint32_t> words(mask.size());
        memory().copy(words.data(), mask.data(), mask.size_bytes());
        std::vector<Newcomer>& newcomers = (*admissions)[b].newcomers;
        std::size_t element = 0;
        read_by_tensor(bucket, bucket.masked_gradients, [&](std::size_t i, std::span<const float> sums) {
            const std::size_t group = bucket.layout.tensors()[i]->group;
            const AdamBetas& betas = by_group_.betas[group];
            for (const float sum : sums) {
                const float g = rounded::multiply(sum, share);
                const float v = second_moment(g, 0, betas);
                if (v > 0 && !takes_part(words.view(), element)) {
                    const float precondition = rounded::divide(1, denominator(v, by_group_.updates[group]));
                    const float u = first_moment(weighted_gradient(g, precondition, betas), 0, betas);
                    newcomers.push_back({element, precondition, u});
                    words[element / kWordElements] |= 1U << (element % kWordElements);
                }
                ++element;
            }
        });
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->make_mask(words.data(), &(*admissions)[b].mask));
    }
    return {};
}

Status FusedOptimizer::admit(std::vector<Admission>& admissions) {
    std::uint64_t admitted = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        auto& [has_newcomers, newcomers, momenta, mask] = admissions[b];
        if (newcomers.empty()) continue;
        admitted += newcomers.size();
        if (momenta.size() > 0) {
            bucket.allreduce->delivery().last_result(ArraySink(momenta.data()));
            bucket.m = std::move(momenta);
        }
        put(bucket, bucket.precondition, newcomers, &Newcomer::precondition);
        put(bucket, bucket.m, newcomers, &Newcomer::m);
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->take_mask(std::move(mask)));
    }
    if (admitted == 0) return {};
    masked_ -= std::min(masked_, admitted);
    follower_->look_at(buckets_);
    log_.write(ONEBIT_LOG_INFO,
               "step %llu: %llu elements without a gradient before the freeze after step %llu have had one: they take "
               "part from now on",
               static_cast<unsigned long long>(steps_), static_cast<unsigned long long>(admitted),
               static_cast<unsigned long long>(freeze_step_));
    return {};
}

// ------------------------------------------------------------------------------------------------------- save ----

/// Adds the sums to the worker error, which is 0 there: a rank must still deliver both.
void FusedOptimizer::add_masked(const Bucket& bucket, float* values) const {
    if (bucket.masked_gradients.size() == 0) return;
    bucket.passes->read(bucket.masked_gradients, [&](std::size_t first, std::span<const float> part) {
        for (std::size_t i = 0; i < part.size(); ++i) values[first + i] += part[i];
    });
}

/// The inverse, in the host's memory. Empty where nothing is masked, or nothing is gathered here.
AlignedBuffer<float> FusedOptimizer::take_masked(const std::uint32_t* mask, AlignedBuffer<float>* values) const {
    const std::span<const std::uint32_t> words(mask, ceil_divide(values->size(), kWordElements));
    AlignedBuffer<float> taken;
    for (std::size_t i = 0; i < values->size(); ++i) {
        if (takes_part(words, i)) continue;
        if (taken.size() == 0) taken = AlignedBuffer<float>(values->size());
        taken[i] = rounded::clamp((*values)[i], kMostGathered);
        (*values)[i] = 0;
    }
    if (!follows()) taken = {};
    return taken;
}

} // namespace onebit
