// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/lower_level.hpp"

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
      mean_(layout_.own_chunk().count),
      shard_source_(mean_.data()) {}

Status LowerLevel::plan(int tag, const std::vector<std::vector<std::vector<Words>>>& results) {
    ONEBIT_RETURN_IF_ERROR(scatter_.plan(channel_, 0, tag, tag + 1));
    for (const std::vector<std::vector<Words>>& of_round : results) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        const auto add = [](std::size_t peer, const std::vector<Words>& messages, std::vector<Part>* parts) {
            for (const Words& words : messages) {
                parts->push_back({static_cast<int>(peer), words.data(), words.size_bytes(), false});
            }
        };
        for (std::size_t peer = 0; peer < ranks(); ++peer) {
            if (peer == layout_.rank()) continue;
            add(peer, of_round[layout_.rank()], &sends);
            add(peer, of_round[peer], &receives);
        }
        ONEBIT_RETURN_IF_ERROR(
            channel_.plan_exchange(std::move(sends), std::move(receives), tag + 2, &results_.emplace_back()));
    }
    bytes_per_call_ = 0;
    for (const Chunk& chunk : layout_.chunks()) {
        if (chunk.index == layout_.rank()) continue;
        bytes_per_call_ += codec_->message_words(chunk) * sizeof(std::uint32_t);
        for (const Words& words : results.front()[layout_.rank()]) bytes_per_call_ += words.size_bytes();
    }
    return {};
}

void LowerLevel::add_stages_up(std::vector<Stage>* stages) {
    stages->push_back({"average of the group", [this](Step* step) { return average_in_pieces(step); }});
}

void LowerLevel::add_stages_down(std::vector<Stage>* stages) {
    stages->push_back({"hand results to the group", [this](Step* step) {
                           *step = Step::kDone;
                           return results_[round_]->start();
                       }});
    stages->push_back(
        {"receive results from the group", [this](Step* step) { return wait_for(*results_[round_], step); }});
}

void LowerLevel::begin(const ValueSource* source, std::uint64_t number, std::size_t round) {
    phase_.begin({.source = source, .number = number}, 0, {});
    scatter_.begin(nullptr);
    round_ = round;
}

/// Work that others wait for comes first.
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
