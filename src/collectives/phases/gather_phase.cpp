// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/phases/gather_phase.hpp"

#include <algorithm>
#include <utility>

#include "schedule/ring.hpp"

namespace onebit {

Status look_at_results(const ValueSink& sink) {
    if (!sink.overflowed()) return {};
    return Status::error(ONEBIT_ERROR_NONFINITE,
                         "a result is too large for the type of recvbuf (config.datatype); the error state has been "
                         "reset");
}

GatherPhase::GatherPhase(const MessageLayout& layout, std::vector<std::vector<std::uint32_t*>> rows,
                         bool tentative_calls)
    : layout_(layout),
      rows_(std::move(rows)),
      error_(layout.codec(), only(layout.own_chunk()), tentative_calls, 2 * layout.rank() + 1) {
    to_read_.reserve(layout.chunks().size());
}

void GatherPhase::begin(const Operands& operands, std::size_t round) {
    operands_ = operands;
    round_ = round;
    error_.begin_call(operands.number);
}

Status GatherPhase::test_vote(bool* known) {
    *known = operands_.vote == nullptr;
    return *known ? Status() : operands_.vote->test(known);
}

Status GatherPhase::check(std::span<const Slice> slices) const {
    if (refused()) return {};
    const Codec& codec = layout_.codec();
    const std::size_t overflowed = codec.first_overflowed(messages_of(round_, slices));
    ONEBIT_RETURN_IF_ERROR(codec.failure()); // which may have shown only now
    return overflowed == slices.size() ? Status() : overflow_of(slices[overflowed].chunk);
}

bool GatherPhase::find_overflow(Status* verdict) const {
    std::size_t element = Codec::kNoElement;
    if (!layout_.codec().find_overflow(&element)) return false;
    if (verdict->ok()) *verdict = layout_.codec().failure();
    if (!verdict->ok() || element == Codec::kNoElement) return true;
    const auto has_it = [element](const Chunk& chunk) { return element < chunk.begin + chunk.count; };
    *verdict = overflow_of(*std::ranges::find_if(layout_.chunks(), has_it));
    return true;
}

Status GatherPhase::overflow_of(const Chunk& chunk) const {
    const bool to_be_committed = operands_.tentative && operands_.vote == nullptr;
    return Status::error(ONEBIT_ERROR_NONFINITE,
                         "the sum of values and error overflowed float32 in the chunk of rank %zu (elements %zu to "
                         "%zu)%s",
                         chunk.index, chunk.begin, chunk.begin + chunk.count - 1,
                         to_be_committed ? "" : "; the error state has been reset");
}

std::span<const EncodedSlice> GatherPhase::messages_of(std::size_t round, std::span<const Slice> slices) const {
    to_read_.clear();
    for (const Slice& slice : slices) to_read_.push_back({slice, rows_[round][slice.chunk.index]});
    return to_read_;
}

void GatherPhase::decode(std::size_t round, std::span<const Slice> slices, const ValueSink& sink) const {
    layout_.codec().decode(messages_of(round, slices), mask_, sink);
}

void GatherPhase::decode(std::size_t round, const ValueSink& sink) const {
    to_read_.clear();
    for (const Chunk& chunk : layout_.chunks()) to_read_.push_back({Slice::whole(chunk), rows_[round][chunk.index]});
    layout_.codec().decode(to_read_, mask_, sink);
}

Status GatherPhase::plan(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                         std::unique_ptr<Exchange>* exchange) const {
    const Chunk& own = layout_.own_chunk();
    const std::vector<std::uint32_t*>& rows = rows_[round];
    std::vector<Part> sends;
    std::vector<Part> receives;
    for (const Chunk& chunk : layout_.chunks()) {
        const std::size_t j = chunk.index;
        if (j == layout_.rank()) continue;
        sends.push_back(layout_.part(j, own, rows[layout_.rank()], words_of(own)));
        receives.push_back(layout_.part(j, chunk, rows[j], words_of(chunk)));
    }
    return transport.plan_exchange(std::move(sends), std::move(receives), tag, exchange);
}

Status GatherPhase::plan_ring(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                              std::unique_ptr<Exchange>* exchange) const {
    std::vector<Part> blocks;
    for (const Chunk& chunk : layout_.chunks()) {
        blocks.push_back(layout_.part(chunk.index, chunk, rows_[round][chunk.index], words_of(chunk)));
    }
    return plan_ring_all_gather(transport, tag, blocks, exchange);
}

void GatherPhase::set_mask(std::span<const std::uint32_t> mask) {
    mask_ = mask;
    error_.set_mask(mask);
}

} // namespace onebit
