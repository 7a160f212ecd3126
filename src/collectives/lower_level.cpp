// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/lower_level.hpp"

#include <utility>

namespace onebit {

LowerLevel::LowerLevel(Transport& channel, std::unique_ptr<Codec> codec, const Chunk& part, onebit_op_t op,
                       std::size_t piece_blocks)
    : channel_(channel),
      codec_(std::move(codec)),
      part_(part),
      share_(share_of(op, static_cast<std::size_t>(channel.size()))),
      layout_(*codec_, partition(part.count, static_cast<std::size_t>(channel.size())),
              static_cast<std::size_t>(channel.rank())),
      messages_(layout_.words()),
      phase_(layout_, {layout_.rows_from(messages_.data())}, false),
      pieces_(layout_, piece_blocks),
      scatter_(phase_, pieces_),
      mean_(layout_.own_chunk().count) {}

std::vector<Chunk> LowerLevel::shards() const {
    std::vector<Chunk> shards;
    for (const Chunk& chunk : layout_.chunks()) shards.push_back(in_buffer(chunk));
    return shards;
}

Status LowerLevel::plan(int tag, std::uint32_t* results, std::span<const std::size_t> words) {
    ONEBIT_RETURN_IF_ERROR(scatter_.plan(channel_, 0, tag, tag + 1));
    const std::size_t own = layout_.rank();
    std::vector<Part> sends;
    std::vector<Part> receives;
    std::vector<std::uint32_t*> first = {results}; // of each shard's messages
    for (const std::size_t of_shard : words) first.push_back(first.back() + of_shard);
    const auto part_of = [&](std::size_t peer, std::size_t shard) {
        return Part{static_cast<int>(peer), first[shard], words[shard] * sizeof(std::uint32_t), false};
    };
    for (const Chunk& chunk : layout_.chunks()) {
        const std::size_t peer = chunk.index;
        if (peer == own) continue;
        sends.push_back(part_of(peer, own));
        receives.push_back(part_of(peer, peer));
        bytes_per_call_ += (codec_->message_words(chunk) + words[own]) * sizeof(std::uint32_t);
    }
    return channel_.plan_exchange(std::move(sends), std::move(receives), tag + 2, &results_);
}

void LowerLevel::add_stages_up(std::vector<Stage>* stages) {
    stages->push_back({"average of the group", [this](Step* step) { return average_in_pieces(step); }});
}

void LowerLevel::add_stages_down(std::vector<Stage>* stages) {
    stages->push_back(start_stage("hand results to the group", *results_));
    stages->push_back(wait_stage("receive results from the group", *results_));
}

void LowerLevel::begin(const ValueSource* source, std::uint64_t number) {
    phase_.begin({.source = source, .number = number}, 0, {});
    scatter_.begin(nullptr);
}

/// What others wait for comes first.
Status LowerLevel::average_in_pieces(Step* step) {
    *step = Step::kAgain;
    bool did = false;
    ONEBIT_RETURN_IF_ERROR(scatter_.encode_next(&did));
    if (!did) ONEBIT_RETURN_IF_ERROR(average_next(&did));
    if (!did) *step = scatter_.all_taken() ? Step::kDone : Step::kWait;
    return {};
}

/// The next piece of the own shard, if all ranks' are there.
Status LowerLevel::average_next(bool* did) {
    ONEBIT_RETURN_IF_ERROR(scatter_.test_next(did));
    if (!*did) return {};
    const ArraySink mean(mean_.data(), Stores::kCached, layout_.own_chunk().begin);
    codec_->average(phase_.received(), share_, scatter_.next(), mean);
    scatter_.take();
    return {};
}

} // namespace onebit
