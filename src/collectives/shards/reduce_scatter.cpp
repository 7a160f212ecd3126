// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/reduce_scatter.hpp"

#include <algorithm>

namespace onebit {

namespace {

Status overflow_in(const Slice& slice, const char* of) {
    return Status::error(ONEBIT_ERROR_NONFINITE, "the sum of %s overflowed float32 between elements %zu and %zu", of,
                         slice.begin(), slice.begin() + slice.count() - 1);
}

} // namespace

// ----------------------------------------------------------------------------------------------- the algorithm ----

ReduceScatterInPieces::ReduceScatterInPieces(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards,
                                             const Plan& plan)
    : layout_(codec, shards, static_cast<std::size_t>(transport.rank())),
      settles_later_(plan.checks_results()),
      share_(share_of(plan.op, shards.size())),
      messages_(layout_.words(), codec.memory()),
      phase_(layout_, {layout_.rows_from(messages_.data())}, plan.tentative),
      pieces_(layout_, plan.piece_blocks),
      scatter_(phase_, pieces_) {
    stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
}

Status ReduceScatterInPieces::create(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards,
                                     const Plan& plan, int tag, std::unique_ptr<ReduceScatterInPieces>* algorithm) {
    std::unique_ptr<ReduceScatterInPieces> made(new ReduceScatterInPieces(transport, codec, shards, plan));
    ONEBIT_RETURN_IF_ERROR(made->scatter_.plan(transport, 0, tag, tag + 1));
    *algorithm = std::move(made);
    return {};
}

void ReduceScatterInPieces::set_operands(const Operands& operands) {
    operands_ = operands;
    vote_.begin(operands.vote);
    received_ = {};
    operands_.vote = &vote_;
    phase_.begin(operands_, 0, {});
    scatter_.begin(nullptr);
}

/// Work that others wait for comes first.
Status ReduceScatterInPieces::advance(Step* step) {
    *step = Step::kAgain;
    bool did = false;
    ONEBIT_RETURN_IF_ERROR(scatter_.encode_next(&did));
    if (!did) ONEBIT_RETURN_IF_ERROR(average_next(&did));
    if (did) return {};
    *step = scatter_.all_taken() ? Step::kDone : Step::kWait;
    if (*step == Step::kWait) return {};
    finish();
    if (vote_.is_held()) return {}; // its verdict is told when the call is concluded
    return vote_.overflow().ok() ? received_ : vote_.overflow();
}

/// Averages the next piece of the own shard, if all ranks' are there, and all agree. Waits for messages in any case.
Status ReduceScatterInPieces::average_next(bool* did) {
    bool all_voted = false;
    ONEBIT_RETURN_IF_ERROR(vote_.test(&all_voted)); // moves it on, too
    if (!all_voted) return {};
    ONEBIT_RETURN_IF_ERROR(scatter_.test_next(did));
    if (!*did) return {};
    const Slice slice = scatter_.next();
    if (!vote_.is_held()) look_for_overflow(slice);
    if (vote_.verdict().ok() && received_.ok())
        layout_.codec().average(phase_.received(), share_, slice, *operands_.sink);
    scatter_.take();
    return {};
}

/// Where no vote is held, an overflow of another rank's error shows in its message.
void ReduceScatterInPieces::look_for_overflow(const Slice& slice) {
    const auto overflowed = [&](const std::uint32_t* message) {
        return layout_.codec().first_overflowed(only(EncodedSlice{slice, message})) == 0;
    };
    if (std::ranges::none_of(phase_.received(), overflowed)) return;
    received_ = overflow_in(slice, "a rank's values and error");
}

/// An error that may not be kept as it was, or that has overflowed, begins at zero again.
void ReduceScatterInPieces::finish() {
    if (!vote_.verdict().ok()) {
        if (!operands_.tentative || !vote_.overflow().ok()) error().reset();
    } else if (!settles_later_) {
        settle({});
    }
}

void ReduceScatterInPieces::settle(const Status& sums) {
    if (operands_.tentative) {
        if (sums.ok()) phase_.error().commit();
    } else if (!sums.ok()) {
        error().reset();
    }
}

bool ReduceScatterInPieces::OwnVote::doubt(const Slice& slice) {
    if (all_ != nullptr && all_->doubt(slice)) return true;
    refuse(overflow_in(slice, "values and error of this rank, which begins anew,"));
    return false;
}

void ReduceScatterInPieces::OwnVote::refuse(const Status& why) {
    if (overflow_.ok()) overflow_ = why;
    if (all_ != nullptr) all_->refuse(why);
}

// --------------------------------------------------------------------------------------------- the collective ----

Status ReduceScatter::make_form(onebit_algorithm_t name) {
    std::unique_ptr<ReduceScatterInPieces> made;
    ONEBIT_RETURN_IF_ERROR(make_in_pieces(name, &compressed_, &made));
    if (made == nullptr) return {};
    std::vector<Stage> behind;
    if (plan_.checks_results()) {
        behind = {{"look at the sum", [this](Step* step) { return preflight_->check_part_of_sum(step); }},
                  {"agree on the sum", [this, form = made.get()](Step* step) {
                       const Status sums = preflight_->agree_on_sum(step);
                       if (*step == Step::kDone) form->settle(sums);
                       return sums;
                   }}};
    }
    add(name, std::move(made), std::move(behind));
    return {};
}

Status ReduceScatter::check_buffers(const void* input, const void* output) const {
    return preflight_->check_buffers({input, plan_.count}, {output, own_shard().count}, own_shard().begin);
}

void ReduceScatter::begin_call(const Status& own, const void* input, void* output) {
    const Chunk& shard = own_shard();
    const bool exact = plan_.algorithm == ONEBIT_ALGORITHM_DENSE;
    const bool tentative = plan_.tentative && !exact;
    preflight_->begin(own, {.input = input,
                            .count = plan_.count,
                            .output = output,
                            .output_count = shard.count,
                            .output_first = shard.begin,
                            .tentative = tentative,
                            .algorithm = plan_.algorithm,
                            .calls = calls_});
    values_.set(elements_, input, 0, output, shard.begin, shard.count);
    const bool votes = !exact && plan_.check != ONEBIT_CHECK_NONE;
    begin(plan_.algorithm, {.source = values_.source(),
                            .sink = values_.sink(),
                            .number = calls_,
                            .tentative = tentative,
                            .vote = votes ? preflight_.get() : nullptr});
}

Status ReduceScatter::get_error(float* error) {
    if (error == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "error is NULL");
    return Collective::get_error(error, nullptr);
}

ErrorState ReduceScatter::error_state() const {
    if (compressed_ == nullptr) return {};
    const Chunk& shard = own_shard();
    return {&compressed_->error(), nullptr, {0, 0, plan_.count}, {shard.index, shard.begin, 0}};
}

} // namespace onebit
