// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/lower_level.hpp"

#include <numeric>
#include <utility>

namespace onebit {

LowerLevel::LowerLevel(Transport& channel, std::unique_ptr<Codec> codec, const Chunk& part, onebit_op_t op)
    : channel_(channel),
      codec_(std::move(codec)),
      part_(part),
      share_(share_of(op, static_cast<std::size_t>(channel.size()))),
      layout_(*codec_, partition(part.count, static_cast<std::size_t>(channel.size())),
              static_cast<std::size_t>(channel.rank())),
      messages_(layout_.words()),
      phase_(layout_, {layout_.rows_from(messages_.data())}, false),
      mean_(layout_.own_chunk().count),
      own_{layout_.own_chunk()} {
    slices_.reserve(layout_.chunks().size());
}

std::vector<Chunk> LowerLevel::shards() const {
    std::vector<Chunk> shards;
    for (const Chunk& chunk : layout_.chunks()) shards.push_back(in_buffer(chunk));
    return shards;
}

Status LowerLevel::plan(int tag, std::uint32_t* results, std::span<const std::size_t> words) {
    const auto whole = [&](const Chunk& chunk) { return WordRange{0, codec_->message_words(chunk)}; };
    ONEBIT_RETURN_IF_ERROR(phase_.plan(channel_, 0, whole, tag, &chunks_));
    const std::size_t own = layout_.rank();
    std::vector<Part> sends;
    std::vector<Part> receives;
    const auto part_of = [&](std::size_t peer, std::size_t shard) {
        std::uint32_t* const first = results + std::accumulate(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shard), std::size_t{0});
        return Part{static_cast<int>(peer), first, words[shard] * sizeof(std::uint32_t), false};
    };
    for (std::size_t peer = 0; peer < ranks(); ++peer) {
        if (peer == own) continue;
        sends.push_back(part_of(peer, own));
        receives.push_back(part_of(peer, peer));
        bytes_per_call_ += (whole(layout_.chunks()[peer]).count + words[own]) * sizeof(std::uint32_t);
    }
    return channel_.plan_exchange(std::move(sends), std::move(receives), tag + 1, &results_);
}

void LowerLevel::add_stages_up(std::vector<Stage>* stages) {
    stages->push_back({"encode for the group", [this](Step* step) { return encode(step); }});
    stages->push_back(start_stage("send to the group", *chunks_));
    stages->push_back(wait_stage("receive from the group", *chunks_));
    stages->push_back({"average of the group", [this](Step* step) { return average(step); }});
}

void LowerLevel::add_stages_down(std::vector<Stage>* stages) {
    stages->push_back(start_stage("hand results to the group", *results_));
    stages->push_back(wait_stage("receive results from the group", *results_));
}

void LowerLevel::begin(const ValueSource* source, std::uint64_t number) {
    phase_.begin({.source = source, .number = number}, 0, {});
    cursor_.restart();
}

Status LowerLevel::encode(Step* step) {
    *step = Step::kAgain;
    if (cursor_.next(layout_.chunks(), &slices_)) {
        phase_.encode(slices_);
        return {};
    }
    phase_.seal();
    cursor_.restart();
    *step = Step::kDone;
    return {};
}

Status LowerLevel::average(Step* step) {
    Slice slice;
    *step = Step::kAgain;
    if (cursor_.next(own_, &slice)) {
        const ArraySink mean(mean_.data(), Stores::kCached, slice.chunk.begin);
        codec_->average(phase_.received(), share_, slice, mean);
        return {};
    }
    *step = Step::kDone;
    return {};
}

} // namespace onebit
