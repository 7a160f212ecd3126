// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether a training can have come to a state that is to be loaded. Checksums detect accidents only: the writer of a
// file makes them right. A state that passes here can be trained on: no interval is 0, no stage contradicts the steps,
// no moment is negative or not finite.

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "optim/fused_optimizer.hpp"

namespace onebit {
namespace {

const char* name_of(ArrayName name) {
    switch (name) {
        case ArrayName::kParameters:
            return "parameters";
        case ArrayName::kMomentum:
            return "momentum";
        case ArrayName::kVariance:
            return "variance";
        case ArrayName::kPrecondition:
            return "preconditioner";
        case ArrayName::kFreshVariance:
            return "fresh variance";
        case ArrayName::kAnchor:
            return "anchor";
        case ArrayName::kMask:
            return "mask";
        case ArrayName::kWorkerError:
            return "worker error";
        case ArrayName::kServerError:
            return "server error";
        case ArrayName::kShardError:
            return "shard's error";
    }
    return "?";
}

bool is_square(ArrayName name) {
    return name == ArrayName::kVariance || name == ArrayName::kPrecondition || name == ArrayName::kFreshVariance;
}

/// Checks that the last word has no bits for elements that don't exist.
Status check_mask(std::uint32_t bucket, std::size_t count, const AlignedBuffer<float>& words) {
    if (count % kWordElements == 0) return {};
    std::uint32_t last = 0;
    std::memcpy(&last, words.data() + words.size() - 1, sizeof(last));
    if (last >> (count % kWordElements) == 0) return {};
    return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: the mask of bucket %u has bits beyond its %zu elements",
                         bucket, count);
}

Status check_values(ArrayName name, std::uint32_t bucket, const AlignedBuffer<float>& values) {
    const bool square = is_square(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const float value = values.data()[i];
        if (std::isfinite(value) && (!square || value >= 0)) continue;
        return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: %s of bucket %u has %g at %zu", name_of(name), bucket,
                             double{value}, i);
    }
    return {};
}

} // namespace

Status check_state(bool possible, const char* what, std::uint64_t number) {
    if (possible) return {};
    return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: %s %llu", what, static_cast<unsigned long long>(number));
}

Status check_state(bool possible, const char* what, double number) {
    if (possible) return {};
    return Status::error(ONEBIT_ERROR_BAD_STATE, "impossible: %s %g", what, number);
}

/// The loaded arrays of one bucket; an array that a bucket doesn't have reads as 0.
class FusedOptimizer::BucketArrays {
  public:
    BucketArrays(const LoadedOptimizer& loaded, std::uint32_t bucket) {
        for (const auto& [key, values] : loaded.arrays) {
            if (key.second == bucket) arrays_[static_cast<std::size_t>(key.first)] = values.data();
        }
    }
    bool has(ArrayName name) const { return arrays_[static_cast<std::size_t>(name)] != nullptr; }
    double at(ArrayName name, std::size_t i) const {
        return has(name) ? arrays_[static_cast<std::size_t>(name)][i] : 0;
    }
    /// Masked elements send nothing. A mask that isn't there yet will mask the elements without a variance.
    bool takes_part(std::size_t i) const {
        if (!has(ArrayName::kMask)) return at(ArrayName::kVariance, i) > 0;
        std::uint32_t word = 0;
        std::memcpy(&word, arrays_[static_cast<std::size_t>(ArrayName::kMask)] + i / kWordElements, sizeof(word));
        return (word >> (i % kWordElements) & 1) != 0;
    }

  private:
    std::array<const float*, kArrayNames> arrays_{};
};

/// Makes sure that the state is complete and possible. Sets the loaded numbers for the checks, then puts this
/// optimizer's own numbers back.
Status FusedOptimizer::check_loaded(const LoadedOptimizer& loaded) {
    struct PutBack { // NOLINT(cppcoreguidelines-special-member-functions): it isn't copied
        FusedOptimizer& optimizer;
        const std::vector<std::uint64_t> own;
        ~PutBack() { (void)optimizer.set_all_numbers(own); } // as many as it has
    } const put_back{*this, all_numbers()};
    if (!set_all_numbers(loaded.numbers)) {
        return Status::error(ONEBIT_ERROR_BAD_STATE, "the saved optimizer has another set of numbers");
    }
    ONEBIT_RETURN_IF_ERROR(check_all_numbers(is_frozen(loaded.identity.stage)));
    return check_arrays(loaded);
}

Status FusedOptimizer::check_all_numbers(bool saved_frozen) {
    for (const std::uint64_t number :
         {steps_, skipped_, exact_rounds_, compressed_rounds_, freeze_step_, masked_, thaws_, least_freeze_step_}) {
        ONEBIT_RETURN_IF_ERROR(check_state(number < kImpossibleCount, "count", number));
    }
    ONEBIT_RETURN_IF_ERROR(check_state(frozen() == saved_frozen, "freeze step", freeze_step_));
    ONEBIT_RETURN_IF_ERROR(check_state(freeze_step_ <= steps_, "freeze step", freeze_step_));
    const bool may_request = settings_.freezes() && steps_ > 0 && !frozen();
    ONEBIT_RETURN_IF_ERROR(check_state(freeze_requested_ <= (may_request ? 1U : 0U), "freeze flag", freeze_requested_));
    ONEBIT_RETURN_IF_ERROR(check_state(settings_.freezes() || !frozen(), "freeze step", freeze_step_));
    const std::uint64_t rounds = exact_rounds_ + compressed_rounds_;
    const bool froze_once = thaws_ == 0;
    const bool may_skip_rounds = drifts() && (frozen() || !froze_once);
    const bool all_exact_before = settings_.freezes() && froze_once && !compresses_in_warm_up();
    const bool stages_fit = (may_skip_rounds ? rounds <= steps_ : rounds == steps_) &&
                            (!all_exact_before || exact_rounds_ == (frozen() ? freeze_step_ : steps_));
    ONEBIT_RETURN_IF_ERROR(check_state(stages_fit, "exact rounds", exact_rounds_));
    ONEBIT_RETURN_IF_ERROR(
        check_state(masked_ <= tensors_.back().offset + tensors_.back().count, "masked elements", masked_));
    ONEBIT_RETURN_IF_ERROR(
        check_state(grad_norm_ >= 0 && std::isfinite(grad_norm_), "norm of the gradients", grad_norm_));
    const double scale = settings_.gradient_scale;
    ONEBIT_RETURN_IF_ERROR(check_state(check_gradient_scale(scale, buckets_.front().allreduce->channel().size()).ok(),
                                       "gradient scale", scale));
    for (const onebit_param_group_t& group : settings_.groups) {
        ONEBIT_RETURN_IF_ERROR(check_state(check_lr("", group.lr).ok(), "learning rate", group.lr));
    }
    if (freeze_rule_ != nullptr) {
        for (const double number : freeze_rule_->history()) {
            ONEBIT_RETURN_IF_ERROR(check_state(number >= 0 && std::isfinite(number), "history of norms", number));
        }
    }
    const bool may_thaw = settings_.freezes() && steps_ > 0;
    ONEBIT_RETURN_IF_ERROR(check_state(thaws_ <= (may_thaw ? steps_ : 0), "thaws", thaws_));
    ONEBIT_RETURN_IF_ERROR(check_state(freezes_again_ <= (thaws_ > 0 ? 1U : 0U), "flag of a thaw", freezes_again_));
    const std::uint64_t latest = thaws_ > 0 ? steps_ + kMostStepsRemembered : 0;
    ONEBIT_RETURN_IF_ERROR(check_state(least_freeze_step_ <= latest, "least freeze step", least_freeze_step_));
    ONEBIT_RETURN_IF_ERROR(check_state(!frozen() || exact_rounds_ > 0, "exact rounds", exact_rounds_));
    if (follower_ != nullptr) ONEBIT_RETURN_IF_ERROR(follower_->check_numbers(steps_));
    return check_numbers();
}

/// Checks all values; each array is known to have its length.
Status FusedOptimizer::check_arrays(const LoadedOptimizer& loaded) const {
    for (const auto& [key, values] : loaded.arrays) {
        const auto& [name, bucket] = key;
        ONEBIT_RETURN_IF_ERROR(name == ArrayName::kMask ? check_mask(bucket, buckets_[bucket].layout.count(), values)
                                                        : check_values(name, bucket, values));
    }
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
        ONEBIT_RETURN_IF_ERROR(check_magnitudes(BucketArrays(loaded, b), b));
    }
    return {};
}

/// The greatest mean of floats over `updates` updates, before the mean is corrected for its bias.
double FusedOptimizer::greatest_mean(double onebit_param_group_t::*beta, std::uint64_t updates) const {
    double share = 1;
    for (const onebit_param_group_t& group : settings_.groups) {
        if (config().bias_correction != 0)
            share = std::min(share, 1 - std::pow(group.*beta, static_cast<double>(updates)));
    }
    return share * double{std::numeric_limits<float>::max()};
}

/// Checks that moments are possible means of gradients, and that preconditioners are 0 only where elements are masked.
/// Then all results of steps from these values are finite. (0/1 Adam's momentum is bounded by the range of floats, once
/// the ranks have met.)
Status FusedOptimizer::check_magnitudes(const BucketArrays& arrays, std::uint32_t number) const {
    const double most_m = greatest_mean(&onebit_param_group_t::beta1, steps_);
    const double most_v =
        greatest_mean(&onebit_param_group_t::beta2, may_freeze(buckets_[number]) ? exact_rounds_ : steps_);
    const bool warms_up = arrays.has(ArrayName::kVariance);
    for (std::size_t i = 0; i < buckets_[number].layout.count(); ++i) {
        const double m = std::abs(arrays.at(ArrayName::kMomentum, i));
        const double v = arrays.at(ArrayName::kVariance, i);
        const bool stays = !warms_up && arrays.at(ArrayName::kPrecondition, i) < double{FLT_MIN};
        if (stays && arrays.takes_part(i)) {
            return Status::error(ONEBIT_ERROR_BAD_STATE,
                                 "impossible: element %zu of bucket %u takes part, but its preconditioner is 0", i,
                                 number);
        }
        if (((warms_up || stays) && m > most_m) || v > most_v) {
            return Status::error(ONEBIT_ERROR_BAD_STATE,
                                 "impossible: after %llu steps element %zu of bucket %u has the moments %g and %g",
                                 static_cast<unsigned long long>(steps_), i, number, m, v);
        }
    }
    return {};
}

} // namespace onebit
