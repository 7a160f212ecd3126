// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/flat.hpp"

#include <numeric>
#include <utility>

namespace onebit {

FlatAllreduce::FlatAllreduce(const Codec& codec, std::size_t count, std::size_t rank, std::size_t ranks, Extras extras)
    : codec_(codec),
      rank_(rank),
      chunks_(partition(count, ranks)),
      own_{chunks_[rank]},
      rounds_(extras.keep_results || extras.tentative_calls ? 2 : 1) {
    worker_ = codec.make_feedback(chunks_);
    server_ = codec.make_feedback(own_);
    if (extras.tentative_calls) {
        next_worker_ = codec.make_feedback(chunks_);
        next_server_ = codec.make_feedback(own_);
    }

    const std::size_t own_words = codec.message_words(own_chunk());
    const std::size_t all_words =
        std::accumulate(chunks_.begin(), chunks_.end(), std::size_t{0},
                        [&](std::size_t words, const Chunk& chunk) { return words + codec.message_words(chunk); });
    incoming_ = AlignedBuffer<std::uint32_t>(own_words * ranks);
    for (std::size_t j = 0; j < ranks; ++j) to_be_averaged_.push_back(incoming_.data() + j * own_words);
    for (Round& round : rounds_) {
        round.messages = AlignedBuffer<std::uint32_t>(all_words);
        std::uint32_t* next = round.messages.data();
        for (std::size_t j = 0; j < ranks; ++j) {
            round.worker_messages.push_back(j == rank ? incoming_.data() + j * own_words : next);
            round.results.push_back(next);
            next += codec.message_words(chunks_[j]);
        }
    }

    stages_ = {
        {"encode chunks", [this](Step* step) { return encode_chunks(step); }},
        {"send chunks", [this](Step* step) { return send_chunks(step); }},
        {"receive chunks", [this](Step* step) { return receive_chunks(step); }},
        {"average and encode", [this](Step* step) { return average_and_encode(step); }},
        {"send result", [this](Step* step) { return send_result(step); }},
        {"receive results", [this](Step* step) { return receive_results(step); }},
        {"decode results", [this](Step* step) { return decode_results(step); }},
    };
}

Status FlatAllreduce::create(Transport& transport, const Codec& codec, std::size_t count, int tag, Extras extras,
                             std::unique_ptr<FlatAllreduce>* algorithm) {
    std::unique_ptr<FlatAllreduce> made(new FlatAllreduce(codec, count, static_cast<std::size_t>(transport.rank()),
                                                          static_cast<std::size_t>(transport.size()), extras));
    // Only one round is ever under way, so that all can have the same tags.
    for (Round& round : made->rounds_) ONEBIT_RETURN_IF_ERROR(made->plan_exchanges(transport, tag, round));
    *algorithm = std::move(made);
    return {};
}

Status FlatAllreduce::plan_exchanges(Transport& transport, int tag, Round& round) {
    const std::size_t own_bytes = codec_.message_words(own_chunk()) * sizeof(std::uint32_t);
    std::vector<Part> send_chunks;
    std::vector<Part> receive_chunks;
    std::vector<Part> send_result;
    std::vector<Part> receive_results;
    for (std::size_t j = 0; j < chunks_.size(); ++j) {
        if (j == rank_) continue;
        const int peer = static_cast<int>(j);
        const std::size_t bytes = codec_.message_words(chunks_[j]) * sizeof(std::uint32_t);
        send_chunks.push_back({peer, round.worker_messages[j], bytes});
        receive_chunks.push_back({peer, const_cast<std::uint32_t*>(to_be_averaged_[j]), own_bytes});
        send_result.push_back({peer, round.results[rank_], own_bytes});
        receive_results.push_back({peer, round.results[j], bytes});
    }
    ONEBIT_RETURN_IF_ERROR(
        transport.plan_exchange(std::move(send_chunks), std::move(receive_chunks), tag, &round.exchange_chunks));
    return transport.plan_exchange(std::move(send_result), std::move(receive_results), tag + 1,
                                   &round.exchange_results);
}

// ---------------------------------------------------------------------------------------------------- stages ----

Status FlatAllreduce::encode_chunks(Step* step) {
    Slice slice;
    if (operands_.source != nullptr && cursor_.next(chunks_, &slice)) {
        codec_.encode(*operands_.source, *worker_, new_worker(), slice, rounds_[last_].results[slice.chunk.index],
                      now().worker_messages[slice.chunk.index]);
        *step = Step::kAgain;
        return {};
    }
    codec_.seal(new_worker(), now().worker_messages);
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status FlatAllreduce::send_chunks(Step* step) {
    *step = Step::kDone;
    return now().exchange_chunks->start();
}

Status FlatAllreduce::receive_chunks(Step* step) {
    return wait_for(*now().exchange_chunks, step);
}

Status FlatAllreduce::average_and_encode(Step* step) {
    Slice slice;
    if (cursor_.next(own_, &slice)) {
        codec_.average_encode(to_be_averaged_, *server_, new_server(), slice, now().results[rank_]);
        *step = Step::kAgain;
        return {};
    }
    codec_.seal(new_server(), std::span(&now().results[rank_], 1));
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status FlatAllreduce::send_result(Step* step) {
    *step = Step::kDone;
    return now().exchange_results->start();
}

Status FlatAllreduce::receive_results(Step* step) {
    ONEBIT_RETURN_IF_ERROR(wait_for(*now().exchange_results, step));
    if (*step == Step::kWait) return {};
    for (const Chunk& chunk : chunks_) { // everybody sees the same messages, so everybody comes to the same verdict
        if (codec_.is_finite(now().results[chunk.index], chunk)) continue;
        if (!operands_.tentative) {
            worker_->reset();
            server_->reset();
        }
        return Status::error(ONEBIT_ERROR_NONFINITE,
                             "the sum of values and error overflowed float32 in the chunk of rank %zu (elements %zu to "
                             "%zu)%s",
                             chunk.index, chunk.begin, chunk.begin + chunk.count - 1,
                             operands_.tentative ? "" : "; the error state has been reset");
    }
    return {};
}

Status FlatAllreduce::decode_results(Step* step) {
    Slice slice;
    if (operands_.sink != nullptr && cursor_.next(chunks_, &slice)) {
        codec_.decode(now().results[slice.chunk.index], slice, mask_.view(), *operands_.sink);
        *step = Step::kAgain;
        return {};
    }
    cursor_.restart();
    if (!operands_.tentative) take_turns();
    *step = Step::kDone;
    return {};
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

void FlatAllreduce::last_result(const ValueSink& sink) const {
    SliceCursor cursor;
    for (Slice slice; cursor.next(chunks_, &slice);) {
        codec_.decode(rounds_[last_].results[slice.chunk.index], slice, mask_.view(), sink);
    }
}

// --------------------------------------------------------------------------------------------------- the mask ----

void FlatAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask) {
    for (const auto* feedback : {&worker_, &server_, &next_worker_, &next_server_}) {
        if (*feedback != nullptr) (*feedback)->set_mask(mask.view());
    }
    mask_ = std::move(mask);
}

std::size_t FlatAllreduce::workspace_bytes() const {
    std::size_t bytes = rounds_.size() * rounds_.front().messages.bytes() + incoming_.bytes() + mask_.bytes() +
                        worker_->workspace_bytes() + server_->workspace_bytes();
    for (const Feedback* next : {next_worker_.get(), next_server_.get()}) {
        if (next != nullptr) bytes += next->state_bytes() + next->workspace_bytes();
    }
    return bytes;
}

} // namespace onebit
