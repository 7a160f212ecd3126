// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/flat.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "schedule/bruck.hpp"

namespace onebit {

FlatAllreduce::FlatAllreduce(const Codec& codec, std::size_t count, std::size_t rank, std::size_t ranks, Extras extras)
    : layout_(codec, partition(count, ranks), rank),
      share_(share_of(extras.op, ranks)),
      messages_(extras.rounds()),
      scatter_(layout_, rows_by_round(extras.messages), extras.tentative_calls),
      gather_(layout_, rows_by_round(extras.messages), extras.tentative_calls) {}

/// Allocates the rows where they aren't allocated yet.
std::vector<std::vector<std::uint32_t*>> FlatAllreduce::rows_by_round(std::uint32_t* messages) {
    std::vector<std::vector<std::uint32_t*>> rows;
    for (AlignedBuffer<std::uint32_t>& own : messages_) {
        if (messages == nullptr && own.size() == 0) {
            own = AlignedBuffer<std::uint32_t>(layout_.words(), layout_.codec().memory());
        }
        rows.push_back(layout_.rows_from(messages == nullptr ? own.data() : messages));
        if (messages != nullptr) messages += layout_.words();
    }
    return rows;
}

std::size_t FlatAllreduce::all_words(const Codec& codec, std::size_t count, std::size_t ranks) {
    return MessageLayout(codec, partition(count, ranks), 0).words();
}

// -------------------------------------------------------------------------------------------------- exchanges ----

Status FlatAllreduce::check_on_host(const char* form) const {
    if (!layout_.on_device()) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: not in a GPU's memory", form);
}

/// Pieces of messages lie a whole message apart, but the transport's own calls want rows one behind the other. So only
/// whole messages go this way.
Status FlatAllreduce::plan_whole_exchanges(Transport& transport, std::size_t round, int tag,
                                           std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results) {
    const auto all_words = [&](const Chunk& chunk) { return WordRange{0, codec().message_words(chunk)}; };
    const std::size_t row_bytes = native_row_bytes();
    const std::span<std::uint32_t* const> rows = gather_.rows(round);
    std::uint32_t* const own_result = rows[layout_.rank()];
    if (row_bytes > 0 && transport.has_native(Pattern::kAllToAll)) {
        // The own row is copied as well. So the own message is encoded among the rows that are sent, in the place of
        // its result. The result doesn't need this place until the copy has been received.
        scatter_.encode_own_at(round, own_result);
        ONEBIT_RETURN_IF_ERROR(
            transport.plan_native(Pattern::kAllToAll, rows.front(), scatter_.incoming(), row_bytes, chunks));
    } else {
        ONEBIT_RETURN_IF_ERROR(scatter_.plan(transport, round, all_words, tag, chunks));
    }
    if (row_bytes > 0 && transport.has_native(Pattern::kAllGather)) {
        return transport.plan_native(Pattern::kAllGather, own_result, rows.front(), row_bytes, results);
    }
    return gather_.plan(transport, round, all_words, tag + 1, results);
}

/// From one message to the next, where they are equally long, lie on a GPU, and there are several ranks; else 0. All
/// ranks come to the same number: the chunks follow from the numbers of elements and of ranks, and their messages'
/// lengths from the chunks and the codec. The ranks have agreed on all of these; none is this rank's own view.
std::size_t FlatAllreduce::native_row_bytes() const {
    const auto words = [&](const Chunk& chunk) { return codec().message_words(chunk); };
    const bool equal = std::ranges::adjacent_find(chunks(), std::ranges::not_equal_to(), words) == chunks().end();
    const bool native = equal && chunks().size() > 1 && layout_.on_device();
    return native ? codec().row_words(own_chunk()) * sizeof(std::uint32_t) : 0;
}

Status FlatAllreduce::plan_bruck_exchanges(Transport& transport, std::size_t round, std::size_t radix, int tag,
                                           std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results) {
    ONEBIT_RETURN_IF_ERROR(check_on_host("ONEBIT_ALGORITHM_BRUCK"));
    std::vector<Part> to;
    std::vector<void*> from;
    std::vector<std::size_t> result_offsets = {0}; // the results of a round lie one behind the other
    for (const Chunk& chunk : layout_.chunks()) {
        const std::size_t j = chunk.index;
        const std::size_t bytes = codec().message_words(chunk) * sizeof(std::uint32_t);
        to.push_back({static_cast<int>(j), scatter_.rows(round)[j], bytes});
        from.push_back(const_cast<std::uint32_t*>(scatter_.received()[j]));
        result_offsets.push_back(result_offsets.back() + bytes);
    }
    ONEBIT_RETURN_IF_ERROR(plan_bruck_all_to_all(transport, tag, radix, to, from, &passing_through_, chunks));
    return plan_bruck_all_gather(transport, tag + 1, radix, gather_.rows(round).front(), result_offsets, results);
}

// -------------------------------------------------------------------------------------------------- one call ----

void FlatAllreduce::set_operands(const Operands& operands) {
    operands_ = operands;
    scatter_.begin(operands, current_, gather_.rows(last_));
    gather_.begin(operands, current_);
}

void FlatAllreduce::average_and_encode(const Slice& slice) {
    codec().average_encode(scatter_.received(), share_, gather_.error().now(), gather_.error_after(), slice,
                           gather_.own_message());
}

void FlatAllreduce::finish(const Status& verdict) {
    if (awaits_commit() || gather_.refused()) return;
    if (verdict.ok()) {
        operands_.tentative ? commit() : take_turns();
    } else if (codec().failure().ok()) { // else there is nothing left to be saved
        worker().reset();
        server().reset();
    }
}

void FlatAllreduce::commit() {
    scatter_.error().commit();
    gather_.error().commit();
    take_turns();
}

void FlatAllreduce::forget() {
    worker().reset();
    server().reset();
    current_ = last_ = previous_ = 0;
}

/// What was current is the last result now.
void FlatAllreduce::take_turns() {
    previous_ = last_;
    last_ = current_;
    current_ = (current_ + 1) % rounds();
}

// --------------------------------------------------------------------------------------------------- the mask ----

void FlatAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask) {
    const AlignedBuffer<std::uint32_t> old = std::exchange(mask_, std::move(mask)); // the phases still use it
    scatter_.error().set_mask(mask_.view());
    gather_.set_mask(mask_.view());
}

std::size_t FlatAllreduce::workspace_bytes() const {
    std::size_t bytes = mask_.bytes() + scatter_.workspace_bytes() + gather_.error().workspace_bytes();
    for (const AlignedBuffer<std::uint32_t>& messages : messages_) bytes += messages.bytes();
    for (const AlignedBuffer<std::byte>& buffer : passing_through_) bytes += buffer.bytes();
    return bytes;
}

} // namespace onebit
