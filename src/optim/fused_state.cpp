// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The saved state of FusedOptimizer and its kinds: numbers and arrays. Of an array that is the same on all ranks, each
// rank saves a piece. A rank saves its own arrays whole. fused_save.cpp and fused_load.cpp use this.

#include <algorithm>

#include "core/hash.hpp"
#include "optim/fused_optimizer.hpp"

namespace onebit {
namespace {

class NumberWriter final : public NumberVisitor {
  public:
    using NumberVisitor::visit;
    void visit(std::uint64_t& number) override { numbers.push_back(number); }
    std::uint64_t visit_count(std::uint64_t own) override {
        numbers.push_back(own);
        return own;
    }
    std::vector<std::uint64_t> numbers;
};

/// Reads what a NumberWriter wrote; `dry`: only counts.
class NumberReader final : public NumberVisitor {
  public:
    NumberReader(const std::vector<std::uint64_t>& numbers, bool dry) : numbers_(numbers), dry_(dry) {}

    using NumberVisitor::visit;
    void visit(std::uint64_t& number) override {
        if (next_ < numbers_.size() && !dry_) number = numbers_[next_];
        ++next_;
    }
    void forget(std::vector<double>& numbers) override {
        if (!dry_) std::ranges::fill(numbers, 0.0);
    }
    std::uint64_t visit_count(std::uint64_t) override {
        const std::uint64_t count = next_ < numbers_.size() ? numbers_[next_] : 0;
        ++next_;
        return std::min<std::uint64_t>(count, numbers_.size()); // an impossible count doesn't fit, and ends soon
    }
    bool fits() const { return next_ == numbers_.size(); }

  private:
    const std::vector<std::uint64_t>& numbers_;
    bool dry_;
    std::size_t next_ = 0;
};

} // namespace

/// An array that is part of a bucket's state, and how ranks share it.
struct FusedOptimizer::ArrayPlan {
    ArrayName name;
    Ownership ownership;
    std::size_t length;
};

std::vector<FusedOptimizer::ArrayPlan> FusedOptimizer::plan_arrays(const Bucket& bucket, SavedStage stage,
                                                                   bool on_two_levels) const {
    const std::size_t count = bucket.layout.count();
    const bool compressing = bucket.compresses && is_frozen(stage);
    const Ownership drifting = compressing && drifts() ? Ownership::kMeans : Ownership::kPieces;
    std::vector<ArrayPlan> plan = {{ArrayName::kParameters, drifting, count}, {ArrayName::kMomentum, drifting, count}};
    const auto add = [&](bool wanted, ArrayName name, Ownership ownership, std::size_t length) {
        if (wanted) plan.push_back({name, ownership, length});
    };
    add(!compressing, ArrayName::kVariance, Ownership::kPieces, count);
    add(compressing, ArrayName::kPrecondition, Ownership::kPieces, count);
    add(compressing && refreshes_variance(), ArrayName::kFreshVariance, Ownership::kPieces, count);
    add(compressing && drifts(), ArrayName::kAnchor, Ownership::kPieces, count);
    add(compressing, ArrayName::kMask, Ownership::kPieces, ceil_divide(count, kWordElements));
    // Where this optimizer averages exactly, what compressed is told by its group.
    const bool may_compress = group_of(*bucket.layout.tensors().front()).no_compress == 0;
    const bool has_error = compressing || (bucket.compresses && compresses_in_warm_up()) ||
                           (may_compress && stage == SavedStage::kGradients);
    add(has_error, ArrayName::kServerError, Ownership::kPieces, count);
    add(has_error, ArrayName::kWorkerError, Ownership::kSpread, count);
    add(has_error && on_two_levels, ArrayName::kShardError, Ownership::kSpread, count);
    std::stable_partition(plan.begin(), plan.end(),
                          [](const ArrayPlan& a) { return a.ownership == Ownership::kPieces; });
    return plan;
}

std::vector<std::uint64_t> FusedOptimizer::all_numbers() {
    NumberWriter writer;
    visit_all_numbers(writer);
    return std::move(writer.numbers);
}

/// False if their count is wrong; then none has been set.
bool FusedOptimizer::set_all_numbers(const std::vector<std::uint64_t>& numbers) {
    NumberReader counter(numbers, true);
    visit_all_numbers(counter);
    if (!counter.fits()) return false;
    NumberReader reader(numbers, false);
    visit_all_numbers(reader);
    return true;
}

void FusedOptimizer::visit_all_numbers(NumberVisitor& visitor) {
    for (std::uint64_t* number :
         {&steps_, &skipped_, &exact_rounds_, &compressed_rounds_, &freeze_step_, &freeze_requested_, &masked_}) {
        visitor.visit(*number);
    }
    visitor.visit(grad_norm_);
    visitor.visit(settings_.gradient_scale);
    for (onebit_param_group_t& group : settings_.groups) visitor.visit(group.lr);
    std::vector<double> no_history;
    visitor.visit(freeze_rule_ != nullptr ? freeze_rule_->history() : no_history);
    visitor.visit(thaws_);
    visitor.visit(freezes_again_);
    visitor.visit(least_freeze_step_);
    visitor.visit(follower_ != nullptr ? follower_->numbers() : no_history);
    visit_numbers(visitor);
}

Identity FusedOptimizer::identity() const {
    std::vector<std::uint64_t> shape;
    for (const Tensor& tensor : tensors_) {
        shape.push_back(tensor.count);
        shape.push_back(static_cast<std::uint64_t>(settings_.groups[tensor.group].no_compress));
        shape.push_back(tensor.group);
    }
    for (const Bucket& bucket : buckets_) shape.push_back(bucket.layout.count());
    const auto no_compress = [](const onebit_param_group_t& group) { return group.no_compress != 0; };
    if (compresses_gradients() && std::ranges::any_of(settings_.groups, no_compress)) {
        for (const Bucket& bucket : buckets_)
            shape.push_back(bucket.compresses ? 1 : 0); // else one cuts them otherwise
    }
    shape.push_back(settings_.groups.size());
    return {static_cast<std::uint32_t>(config().kind), stage(), tensors_.back().offset + tensors_.back().count,
            hash_bytes(shape.data(), shape.size() * sizeof(std::uint64_t))};
}

/// Which elements of an array of `count` elements, or of bits for them, rank `rank` of `ranks` saves.
Chunk FusedOptimizer::part_of(ArrayName name, Ownership ownership, std::size_t count, std::uint32_t rank,
                              std::uint32_t ranks, const Seat& seat) {
    if (name == ArrayName::kShardError) return seat.shard(count);
    if (name == ArrayName::kServerError && seat.on_two_levels()) return seat.served(count, ranks);
    return ownership == Ownership::kPieces ? partition(count, ranks)[rank] : Chunk{0, 0, count};
}

/// The arrays that rank `rank` of `ranks` saves; pieces first.
std::vector<ArrayRow> FusedOptimizer::rows_of(SavedStage stage, std::uint32_t rank, std::uint32_t ranks,
                                              const Seat& seat) const {
    std::vector<ArrayRow> rows;
    for (const bool own : {false, true}) {
        for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
            for (const ArrayPlan& plan : plan_arrays(buckets_[b], stage, seat.on_two_levels())) {
                if ((plan.ownership != Ownership::kPieces) != own) continue;
                const Chunk part = part_of(plan.name, plan.ownership, buckets_[b].layout.count(), rank, ranks, seat);
                const bool words = plan.name == ArrayName::kMask;
                rows.push_back({plan.name, b, plan.ownership, 0, plan.length,
                                words ? part.begin / kWordElements : part.begin, words ? part.words() : part.count});
            }
        }
    }
    return rows;
}

} // namespace onebit
