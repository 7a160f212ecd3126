// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Saving and loading of what FusedOptimizer and its kinds keep. What is the same on every rank is saved in pieces, one
// by each; what is a rank's own as a whole. Loading first puts everything together beside the optimizer, then all ranks
// agree, and only then does anything change.

#include <algorithm>
#include <cstring>

#include "collectives/operation/saved_files.hpp"
#include "collectives/operation/together.hpp"
#include "core/file_lock.hpp"
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
        return std::min<std::uint64_t>(count, numbers_.size()); // an impossible one doesn't fit, and doesn't take long
    }
    bool fits() const { return next_ == numbers_.size(); }

  private:
    const std::vector<std::uint64_t>& numbers_;
    bool dry_;
    std::size_t next_ = 0;
};

/// Which save it is, and what it says of itself.
std::uint64_t hash_of(const LoadedOptimizer& loaded) {
    return hash_bytes(loaded.numbers.data(), loaded.numbers.size() * sizeof(std::uint64_t)) ^ loaded.mark.save;
}

/// The bytes of one rank's masks or floats, which move and are not computed with.
std::vector<float> as_floats(std::span<const std::uint32_t> words) {
    std::vector<float> floats(words.size());
    if (!words.empty()) std::memcpy(floats.data(), words.data(), words.size_bytes());
    return floats;
}

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

/// False if they aren't as many as there must be; then none has been set.
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

// ------------------------------------------------------------------------------------------------------- save ----

Status FusedOptimizer::save(const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    Allreduce& first = *buckets_.front().allreduce;
    return together(first, [&] {
        return save_file(first, prefix, [&](const SaveMark& mark, std::vector<std::byte>* bytes) {
            const SavedOptimizer own = saved();
            bytes->resize(own.bytes());
            own.pack(mark, bytes->data());
            return Status();
        });
    });
}

/// Which elements of an array of `count` elements, or of bits for them, a rank of so many saves.
Chunk FusedOptimizer::part_of(ArrayName name, Ownership ownership, std::size_t count, std::uint32_t rank,
                              std::uint32_t ranks, const Seat& seat) {
    if (name == ArrayName::kShardError) return seat.shard(count);
    if (name == ArrayName::kServerError && seat.on_two_levels()) return seat.served(count, ranks);
    return ownership == Ownership::kPieces ? partition(count, ranks)[rank] : Chunk{0, 0, count};
}

/// The arrays that a rank of so many saves; pieces first.
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

/// What this rank saves.
SavedOptimizer FusedOptimizer::saved() {
    const Transport& channel = buckets_.front().allreduce->channel();
    SavedOptimizer saved = {identity(),
                            static_cast<std::uint32_t>(channel.rank()),
                            static_cast<std::uint32_t>(channel.size()),
                            seat(),
                            all_numbers(),
                            {}};
    for (const ArrayRow& row : rows_of(stage(), saved.rank, saved.ranks, saved.seat)) {
        const Bucket& bucket = buckets_[row.bucket];
        const Chunk piece =
            part_of(row.name, row.ownership, bucket.layout.count(), saved.rank, saved.ranks, saved.seat);
        saved.arrays.push_back({row, piece_of(bucket, row.name, piece)});
    }
    return saved;
}

/// The elements of `piece`, which is what this rank saves of the array, or any of one that isn't an error.
std::vector<float> FusedOptimizer::piece_of(const Bucket& bucket, ArrayName name, const Chunk& piece) const {
    std::vector<float> values(piece.count);
    const auto copy = [&](const AlignedBuffer<float>& from) {
        if (piece.count > 0) memory().copy(values.data(), from.data() + piece.begin, piece.count * sizeof(float));
    };
    switch (name) {
        case ArrayName::kParameters:
            for (std::size_t i = 0; i < bucket.layout.tensors().size(); ++i) {
                const Segment part = bucket.layout.whole_tensor(i).within(piece.begin, piece.count);
                if (part.count == 0) continue;
                memory().copy(values.data() + (part.offset - piece.begin), part.parameters(),
                              part.count * sizeof(float));
            }
            break;
        case ArrayName::kMomentum:
            if (bucket.m.size() > 0) {
                copy(bucket.m);
                break;
            }
            copy_message(bucket, piece.begin, piece.count, values.data());
            break;
        case ArrayName::kVariance:
            copy(bucket.v);
            break;
        case ArrayName::kPrecondition:
            copy(bucket.precondition);
            break;
        case ArrayName::kFreshVariance:
            copy(bucket.v_fresh);
            break;
        case ArrayName::kAnchor:
            copy(bucket.anchor);
            break;
        case ArrayName::kMask: {
            std::vector<std::uint32_t> all(piece.words(), ~0U); // no mask: all take part
            if (const std::size_t rest = piece.count % kWordElements; rest > 0) all.back() = (1U << rest) - 1;
            const std::span<const std::uint32_t> mask = bucket.allreduce->delivery().mask();
            if (!mask.empty() && !all.empty()) {
                memory().copy(all.data(), mask.data() + piece.begin / kWordElements,
                              all.size() * sizeof(std::uint32_t));
            }
            return as_floats(all);
        }
        case ArrayName::kWorkerError:
            if (!seat().on_two_levels()) bucket.allreduce->get_state(values.data(), nullptr);
            add_masked(bucket, values.data());
            break;
        case ArrayName::kServerError:
            bucket.allreduce->get_state(nullptr, values.data());
            break;
        case ArrayName::kShardError:
            bucket.allreduce->get_state(values.data(), nullptr);
            break;
    }
    return values;
}

// ------------------------------------------------------------------------------------------------------- load ----

Status FusedOptimizer::load(const char* prefix) {
    ONEBIT_RETURN_IF_ERROR(check_between_steps());
    Allreduce& first = *buckets_.front().allreduce;
    LoadedOptimizer loaded;
    Room room;
    const Status own = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(check_prefix(prefix));
        if (first.channel().rank() == 0) ONEBIT_RETURN_IF_ERROR(FileLock::check_free(lock_name(prefix)));
        ONEBIT_RETURN_IF_ERROR(load_optimizer(prefix, expected_file(), &loaded));
        const Status fits = check_loaded(loaded);
        if (!fits.ok()) return Status::error(fits.code(), "%s: %s", shown(prefix).c_str(), fits.message().c_str());
        return make_room_for(loaded, &room);
    });
    ONEBIT_RETURN_IF_ERROR(take_over(own, loaded, std::move(room)));
    return tell_of_recovery(first, prefix, loaded.mark, loaded.places);
}

/// Once each rank has made ready what it loads: on all ranks or on none. Collective; blocks.
Status FusedOptimizer::take_over(const Status& own, LoadedOptimizer& loaded, Room room) {
    Allreduce& first = *buckets_.front().allreduce;
    const Status agreed = first.agree_now(own, static_cast<std::uint32_t>(loaded.saved_ranks), hash_of(loaded),
                                          {"how many ranks the save is of", "which state was saved last (a hash)"});
    if (agreed.ok()) return restore(loaded, std::move(room));
    for (Bucket& bucket : buckets_) { // what was made for sums that aren't to come
        if (bucket.compresses && frozen()) drop_sum(bucket);
    }
    return agreed;
}

/// What this optimizer's own file would be like, but that the history of norms may be that of another rule, and that
/// variances may or may not have been followed.
ExpectedFile FusedOptimizer::expected_file() {
    const std::size_t history = freeze_rule_ != nullptr ? freeze_rule_->history().size() : 0;
    const std::size_t followed = follower_ != nullptr ? follower_->numbers().size() : 0;
    const std::size_t others = all_numbers().size() - history - followed;
    const Transport& channel = buckets_.front().allreduce->channel();
    return {identity(),
            frozen_as(),
            others,
            others + longest_freeze_history(settings_.groups.size(), 2 * tensors_.size()) + 1 + tensors_.size(),
            [this](SavedStage stage, std::uint32_t rank, std::uint32_t ranks, const Seat& seat) {
                return rows_of(stage, rank, ranks, seat);
            },
            channel.rank(),
            channel.size(),
            seats_};
}

/// Brings the buckets' arrays to where these lie, and makes room for what the state needs besides.
Status FusedOptimizer::make_room_for(LoadedOptimizer& loaded, Room* room) {
    const auto place = [this](AlignedBuffer<float>& values) {
        if (&memory() == &host_memory()) return;
        AlignedBuffer<float> moved(values.size(), memory());
        moved.copy_from(values.data());
        values = std::move(moved);
    };
    constexpr ArrayName kPlaced[] = {ArrayName::kMomentum, ArrayName::kVariance, ArrayName::kPrecondition,
                                     ArrayName::kFreshVariance, ArrayName::kAnchor};
    for (auto& [key, values] : loaded.arrays) {
        if (std::ranges::find(kPlaced, key.first) != std::end(kPlaced)) place(values);
    }
    for (Bucket& bucket : buckets_) {
        const bool will_be_frozen = is_frozen(loaded.identity.stage);
        if (needs_sum(bucket, will_be_frozen)) {
            ONEBIT_RETURN_IF_ERROR(make_sum(bucket));
        } else if (will_be_frozen) {
            bucket.passes->make_room_for_momenta();
        }
    }
    room->masks.resize(buckets_.size());
    room->masked_gradients.resize(buckets_.size());
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
        if (!buckets_[b].compresses) continue;
        const auto found = loaded.arrays.find({ArrayName::kMask, b});
        const auto* const words =
            found == loaded.arrays.end() ? nullptr : reinterpret_cast<const std::uint32_t*>(found->second.data());
        ONEBIT_RETURN_IF_ERROR(buckets_[b].allreduce->make_mask(words, &room->masks[b]));
        if (words == nullptr) continue;
        room->masked_gradients[b] = take_masked(words, &loaded.arrays.at({ArrayName::kWorkerError, b}));
        place(room->masked_gradients[b]);
    }
    return {};
}

/// On the host nothing here needs memory: it can't fail any more.
Status FusedOptimizer::restore(LoadedOptimizer& save, Room room) {
    (void)set_all_numbers(save.numbers); // as many as check_loaded has seen
    if (freeze_rule_ != nullptr) freeze_rule_->forget_wait();
    for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        const auto take = [&](ArrayName name) {
            const auto found = save.arrays.find({name, b});
            return found == save.arrays.end() ? AlignedBuffer<float>() : std::move(found->second);
        };
        bucket.m = take(ArrayName::kMomentum); // the next step reads it from here
        bucket.v = take(ArrayName::kVariance);
        bucket.precondition = take(ArrayName::kPrecondition);
        bucket.v_fresh = take(ArrayName::kFreshVariance);
        bucket.anchor = take(ArrayName::kAnchor);
        const AlignedBuffer<float> parameters = take(ArrayName::kParameters);
        bucket.passes->set_parameters(parameters.data());
        if (bucket.compresses && frozen()) drop_sum(bucket);
        if (!bucket.compresses) continue;
        ONEBIT_RETURN_IF_ERROR(bucket.allreduce->take_mask(std::move(room.masks[b])));
        bucket.masked_gradients = std::move(room.masked_gradients[b]);
        const AlignedBuffer<float> worker =
            take(seat().on_two_levels() ? ArrayName::kShardError : ArrayName::kWorkerError);
        const AlignedBuffer<float> server = take(ArrayName::kServerError);
        if (worker.size() == 0) {
            ONEBIT_RETURN_IF_ERROR(bucket.allreduce->reset());
        } else {
            Allreduce& allreduce = *bucket.allreduce;
            ONEBIT_RETURN_IF_ERROR(allreduce.set_state(worker.data() + allreduce.worker_part().begin,
                                                       server.data() + allreduce.server_chunk().begin, steps_));
        }
    }
    if (follower_ != nullptr) {
        follower_->loaded(frozen(), steps_);
        if (frozen()) follower_->look_at(buckets_);
    }
    told_of_growth_ = false;
    std::ranges::fill(set_hashes_, 0);
    set_hash_ = 0;
    loaded();
    if (frozen()) look_at_shared_scales();
    return {};
}

} // namespace onebit
