// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/flat.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "collectives/bruck.hpp"
#include "collectives/ring.hpp"

namespace onebit {

FlatAllreduce::FlatAllreduce(const Codec& codec, std::size_t count, std::size_t rank, std::size_t ranks, Extras extras)
    : codec_(codec),
      rank_(rank),
      share_(share_of(extras.op, ranks)),
      chunks_(partition(count, ranks)),
      rounds_(extras.keep_results ? 2 : 1) {
    const std::span own(&chunks_[rank], 1);
    worker_ = codec.make_feedback(chunks_);
    server_ = codec.make_feedback(own);
    if (extras.tentative_calls) {
        next_worker_ = codec.make_feedback(chunks_);
        next_server_ = codec.make_feedback(own);
    }

    to_encode_.reserve(ranks);
    to_read_.reserve(ranks);

    const std::size_t own_words = codec.row_words(own_chunk());
    incoming_ = AlignedBuffer<std::uint32_t>(own_words * ranks, codec.memory());
    for (std::size_t j = 0; j < ranks; ++j) to_be_averaged_.push_back(incoming_.data() + j * own_words);
    for (Round& round : rounds_) {
        if (extras.messages == nullptr) {
            round.messages = AlignedBuffer<std::uint32_t>(all_words(codec, count, ranks), codec.memory());
        }
        std::uint32_t* next = extras.messages == nullptr ? round.messages.data() : extras.messages;
        for (std::size_t j = 0; j < ranks; ++j) {
            round.worker_messages.push_back(j == rank ? incoming_.data() + j * own_words : next);
            round.results.push_back(next);
            next += codec.row_words(chunks_[j]);
        }
    }
}

std::size_t FlatAllreduce::all_words(const Codec& codec, std::size_t count, std::size_t ranks) {
    std::size_t words = 0;
    for (const Chunk& chunk : partition(count, ranks)) words += codec.row_words(chunk);
    return words;
}

// -------------------------------------------------------------------------------------------------- exchanges ----

/// Some words of a chunk's message.
Part FlatAllreduce::part(std::size_t peer, const Chunk& chunk, const std::uint32_t* message,
                         const WordRange& words) const {
    return {.peer = static_cast<int>(peer),
            .data = const_cast<std::uint32_t*>(message) + words.begin,
            .bytes = words.count * sizeof(std::uint32_t),
            .on_device = on_device(),
            .pitch = codec_.row_words(chunk) * sizeof(std::uint32_t)};
}

Status FlatAllreduce::plan_chunks(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                                  std::unique_ptr<Exchange>* chunks) const {
    const Round& buffers = rounds_[round];
    const WordRange own = words_of(own_chunk());
    std::vector<Part> sends;
    std::vector<Part> receives;
    for (const Chunk& chunk : chunks_) {
        const std::size_t j = chunk.index;
        if (j == rank_) continue;
        sends.push_back(part(j, chunk, buffers.worker_messages[j], words_of(chunk)));
        receives.push_back(part(j, own_chunk(), to_be_averaged_[j], own));
    }
    return transport.plan_exchange(std::move(sends), std::move(receives), tag, chunks);
}

Status FlatAllreduce::plan_results(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                                   std::unique_ptr<Exchange>* results) const {
    const Round& buffers = rounds_[round];
    const WordRange own = words_of(own_chunk());
    std::vector<Part> sends;
    std::vector<Part> receives;
    for (const Chunk& chunk : chunks_) {
        const std::size_t j = chunk.index;
        if (j == rank_) continue;
        sends.push_back(part(j, own_chunk(), buffers.results[rank_], own));
        receives.push_back(part(j, chunk, buffers.results[j], words_of(chunk)));
    }
    return transport.plan_exchange(std::move(sends), std::move(receives), tag, results);
}

Status FlatAllreduce::plan_ring_of_results(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                                           std::unique_ptr<Exchange>* results) const {
    ONEBIT_RETURN_IF_ERROR(check_on_host("ONEBIT_ALGORITHM_RING"));
    std::vector<Part> blocks;
    for (const Chunk& chunk : chunks_) {
        blocks.push_back(part(chunk.index, chunk, rounds_[round].results[chunk.index], words_of(chunk)));
    }
    return plan_ring_all_gather(transport, tag, blocks, results);
}

/// Messages that hop are copied, or at least passed on, by the processor.
Status FlatAllreduce::check_on_host(const char* form) const {
    if (!on_device()) return {};
    return Status::error(ONEBIT_ERROR_UNSUPPORTED, "%s: not in a GPU's memory", form);
}

/// Pieces of messages lie a whole message apart, where such calls want rows that lie one behind the other; so it is
/// whole messages alone that go this way.
Status FlatAllreduce::plan_whole_exchanges(Transport& transport, std::size_t round, int tag,
                                           std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results) {
    const auto all_words = [&](const Chunk& chunk) { return WordRange{0, codec_.message_words(chunk)}; };
    const std::size_t row_bytes = native_row_bytes();
    Round& buffers = rounds_[round];
    if (row_bytes > 0 && transport.has_native(Pattern::kAllToAll)) {
        // The own row is copied as well. So the own message is encoded where all others are sent from, in the place of
        // its result, which isn't needed until the copy is in `incoming_`.
        buffers.worker_messages[rank_] = buffers.results[rank_];
        ONEBIT_RETURN_IF_ERROR(
            transport.plan_native(Pattern::kAllToAll, buffers.results.front(), incoming_.data(), row_bytes, chunks));
    } else {
        ONEBIT_RETURN_IF_ERROR(plan_chunks(transport, round, all_words, tag, chunks));
    }
    if (row_bytes > 0 && transport.has_native(Pattern::kAllGather)) {
        return transport.plan_native(Pattern::kAllGather, buffers.results[rank_], buffers.results.front(), row_bytes,
                                     results);
    }
    return plan_results(transport, round, all_words, tag + 1, results);
}

/// From one message to the next, where they are equally long, there is somebody to send them to, and they lie on a GPU;
/// else 0. All ranks come to the same: the chunks follow from the numbers of elements and of ranks, their messages'
/// lengths from those and the codec, on all of which the ranks have agreed; none of it is this rank's own view.
std::size_t FlatAllreduce::native_row_bytes() const {
    const auto words = [&](const Chunk& chunk) { return codec_.message_words(chunk); };
    const bool equal = std::ranges::adjacent_find(chunks_, std::ranges::not_equal_to(), words) == chunks_.end();
    return equal && chunks_.size() > 1 && on_device() ? codec_.row_words(own_chunk()) * sizeof(std::uint32_t) : 0;
}

Status FlatAllreduce::plan_bruck_exchanges(Transport& transport, std::size_t round, std::size_t radix, int tag,
                                           std::unique_ptr<Exchange>* chunks, std::unique_ptr<Exchange>* results) {
    ONEBIT_RETURN_IF_ERROR(check_on_host("ONEBIT_ALGORITHM_BRUCK"));
    const Round& buffers = rounds_[round];
    std::vector<Part> to;
    std::vector<void*> from;
    std::vector<std::size_t> result_offsets = {0}; // the results of a round lie one behind the other
    for (const Chunk& chunk : chunks_) {
        const std::size_t j = chunk.index;
        const std::size_t bytes = codec_.message_words(chunk) * sizeof(std::uint32_t);
        to.push_back({static_cast<int>(j), buffers.worker_messages[j], bytes});
        from.push_back(const_cast<std::uint32_t*>(to_be_averaged_[j]));
        result_offsets.push_back(result_offsets.back() + bytes);
    }
    ONEBIT_RETURN_IF_ERROR(plan_bruck_all_to_all(transport, tag, radix, to, from, &passing_through_, chunks));
    return plan_bruck_all_gather(transport, tag + 1, radix, buffers.results.front(), result_offsets, results);
}

// -------------------------------------------------------------------------------------------------- one call ----

void FlatAllreduce::encode(std::span<const Slice> slices) {
    to_encode_.clear();
    for (const Slice& slice : slices) {
        const std::size_t j = slice.chunk.index;
        to_encode_.push_back({slice, rounds_[last_].results[j], now().worker_messages[j]});
    }
    codec_.encode(*operands_.source, *worker_, new_worker(), to_encode_);
    if (operands_.consent == nullptr) return;
    for (const auto& [slice, last, message] : to_encode_) {
        if (!codec_.encoded_finite(new_worker(), slice, message)) operands_.consent->doubt(slice);
    }
}

Status FlatAllreduce::test_consent(bool* known) {
    *known = operands_.consent == nullptr;
    return *known ? Status() : operands_.consent->test(known);
}

void FlatAllreduce::average_and_encode(const Slice& slice) {
    codec_.average_encode(to_be_averaged_, share_, *server_, new_server(), slice, now().results[rank_]);
}

Status FlatAllreduce::check_result(std::span<const Slice> slices) const {
    if (refused()) return {};
    const std::size_t overflowed = codec_.first_overflowed(results_of(now(), slices));
    ONEBIT_RETURN_IF_ERROR(codec_.failure()); // which may have shown only now
    return overflowed == slices.size() ? Status() : overflow_of(slices[overflowed].chunk);
}

bool FlatAllreduce::find_overflow(Status* verdict) const {
    std::size_t element = Codec::kNoElement;
    if (!codec_.find_overflow(&element)) return false;
    if (verdict->ok()) *verdict = codec_.failure();
    if (!verdict->ok() || element == Codec::kNoElement) return true;
    const auto has_it = [element](const Chunk& chunk) { return element < chunk.begin + chunk.count; };
    *verdict = overflow_of(*std::ranges::find_if(chunks_, has_it));
    return true;
}

Status FlatAllreduce::overflow_of(const Chunk& chunk) const {
    return Status::error(ONEBIT_ERROR_NONFINITE,
                         "the sum of values and error overflowed float32 in the chunk of rank %zu (elements %zu to "
                         "%zu)%s",
                         chunk.index, chunk.begin, chunk.begin + chunk.count - 1,
                         awaits_commit() ? "" : "; the error state has been reset");
}

void FlatAllreduce::decode(std::span<const Slice> slices) {
    decode_result(now(), slices, *operands_.sink);
}

void FlatAllreduce::finish(const Status& verdict) {
    if (awaits_commit() || refused()) return;
    if (verdict.ok()) {
        operands_.tentative ? commit() : take_turns();
    } else if (codec_.failure().ok()) { // else there is nothing left to be saved
        worker_->reset();
        server_->reset();
    }
}

void FlatAllreduce::commit() {
    std::swap(worker_, next_worker_);
    std::swap(server_, next_server_);
    take_turns();
}

/// What was current is the last result now.
void FlatAllreduce::take_turns() {
    previous_ = last_;
    last_ = current_;
    current_ = (current_ + 1) % rounds_.size();
}

std::span<const EncodedSlice> FlatAllreduce::results_of(const Round& round, std::span<const Slice> slices) const {
    to_read_.clear();
    for (const Slice& slice : slices) to_read_.push_back({slice, round.results[slice.chunk.index]});
    return to_read_;
}

void FlatAllreduce::decode_result(const Round& round, std::span<const Slice> slices, const ValueSink& sink) const {
    codec_.decode(results_of(round, slices), mask_.view(), sink);
}

void FlatAllreduce::decode_result(const Round& round, const ValueSink& sink) const {
    to_read_.clear();
    for (const Chunk& chunk : chunks_) to_read_.push_back({Slice::whole(chunk), round.results[chunk.index]});
    codec_.decode(to_read_, mask_.view(), sink);
}

// --------------------------------------------------------------------------------------------------- the mask ----

void FlatAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask) {
    const AlignedBuffer<std::uint32_t> old = std::exchange(mask_, std::move(mask)); // which they still know
    for (const auto* feedback : {&worker_, &server_, &next_worker_, &next_server_}) {
        if (*feedback != nullptr) (*feedback)->set_mask(mask_.view());
    }
}

std::size_t FlatAllreduce::workspace_bytes() const {
    std::size_t bytes = rounds_.size() * rounds_.front().messages.bytes() + incoming_.bytes() + mask_.bytes() +
                        worker_->workspace_bytes() + server_->workspace_bytes();
    for (const AlignedBuffer<std::byte>& buffer : passing_through_) bytes += buffer.bytes();
    for (const Feedback* next : {next_worker_.get(), next_server_.get()}) {
        if (next != nullptr) bytes += next->state_bytes() + next->workspace_bytes();
    }
    return bytes;
}

} // namespace onebit
