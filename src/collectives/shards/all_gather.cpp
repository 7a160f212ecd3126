// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/shards/all_gather.hpp"

#include <algorithm>

namespace onebit {

// ----------------------------------------------------------------------------------------------- the algorithm ----

AllGatherInPieces::AllGatherInPieces(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards,
                                     const Plan& plan)
    : layout_(codec, shards, static_cast<std::size_t>(transport.rank())),
      messages_(layout_.words(), codec.memory()),
      phase_(layout_, {layout_.rows_from(messages_.data())}, plan.tentative),
      pieces_(layout_, plan.piece_blocks),
      gather_(phase_, pieces_, GatherPieces::Way::kStraight) {
    stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
}

Status AllGatherInPieces::create(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards,
                                 const Plan& plan, int tag, std::unique_ptr<AllGatherInPieces>* algorithm) {
    std::unique_ptr<AllGatherInPieces> made(new AllGatherInPieces(transport, codec, shards, plan));
    ONEBIT_RETURN_IF_ERROR(made->gather_.plan(transport, 0, tag, tag + 1));
    *algorithm = std::move(made);
    return {};
}

void AllGatherInPieces::set_operands(const Operands& operands) {
    operands_ = operands;
    phase_.begin(operands, 0);
    gather_.begin();
}

/// Work that others wait for comes first.
Status AllGatherInPieces::advance(Step* step) {
    *step = Step::kAgain;
    bool did = false;
    ONEBIT_RETURN_IF_ERROR(encode_next(&did));
    if (!did) ONEBIT_RETURN_IF_ERROR(gather_.decode_next(&did));
    if (did) return {};
    *step = Step::kWait;
    if (!gather_.all_decoded()) return {};
    Status verdict;
    const bool known = gather_.find_verdict(&verdict);
    *step = known ? Step::kDone : Step::kInStream;
    if (known) finish(verdict);
    return verdict;
}

/// Encodes the next piece of the own shard, and sends it to everybody.
Status AllGatherInPieces::encode_next(bool* did) {
    if (gather_.all_sent()) return {};
    *did = true;
    const Codec& codec = layout_.codec();
    const Slice slice = pieces_.of(layout_.own_chunk(), gather_.sent());
    std::uint32_t* const message = phase_.own_message();
    codec.encode(*operands_.source, phase_.error().now(), phase_.error_after(),
                 only(SliceToEncode{slice, nullptr, message}));
    Vote* const vote = operands_.vote;
    if (vote != nullptr && !codec.encoded_finite(phase_.error_after(), slice, message)) (void)vote->doubt(slice);
    ONEBIT_RETURN_IF_ERROR(gather_.send_next());
    return gather_.all_sent() && vote != nullptr ? vote->cast() : Status();
}

/// A call that overflowed was not transactional: the error is reset.
void AllGatherInPieces::finish(const Status& verdict) {
    if (phase_.refused()) return;
    if (!verdict.ok()) {
        error().reset();
    } else if (operands_.tentative) {
        phase_.error().commit();
    }
}

// --------------------------------------------------------------------------------------------- the collective ----

Status AllGather::make_form(onebit_algorithm_t name) {
    std::unique_ptr<AllGatherInPieces> made;
    ONEBIT_RETURN_IF_ERROR(make_in_pieces(name, &compressed_, &made));
    if (made != nullptr) add(name, std::move(made));
    return {};
}

Status AllGather::check_buffers(const void* input, const void* output) const {
    return preflight_->check_buffers({input, own_shard().count}, {output, plan_.count}, own_shard().begin);
}

void AllGather::begin_call(const Status& own, const void* input, void* output) {
    const Chunk& shard = own_shard();
    const bool tentative = plan_.tentative && plan_.algorithm != ONEBIT_ALGORITHM_DENSE;
    preflight_->begin(own, {.input = input,
                            .count = shard.count,
                            .first = shard.begin,
                            .tentative = tentative,
                            .algorithm = plan_.algorithm,
                            .calls = calls_});
    values_.set(elements_, input, shard.begin, output, 0, plan_.count);
    begin(plan_.algorithm, {.source = values_.source(),
                            .sink = values_.sink(),
                            .number = calls_,
                            .tentative = tentative,
                            .vote = tentative ? preflight_.get() : nullptr});
}

ErrorState AllGather::error_state() const {
    if (compressed_ == nullptr) return {};
    return {nullptr, &compressed_->error(), {}, own_shard()};
}

Status AllGather::get_error(float* error) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    const std::size_t count = own_shard().count;
    if (count == 0) return {};
    if (error == nullptr) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "error is NULL");
    std::fill_n(error, count, 0.0F);
    return Collective::get_error(nullptr, error);
}

} // namespace onebit
