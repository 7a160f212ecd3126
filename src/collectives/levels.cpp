// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/levels.hpp"

#include <algorithm>
#include <utility>

#include "compress/exact/exact_codec.hpp"

namespace onebit {
namespace {

/// Of each level's channel; between the last groups the flat form's.
constexpr int kFirstTag = 0;

/// How a level's values travel: as they are, of `type`, or as its codec has it.
Status make_level_codec(const LevelPlan& level, const NumericKernels& kernels, onebit_datatype_t type, unsigned threads,
                        std::unique_ptr<Codec>* codec) {
    if (level.codec) return make_codec(*level.codec, codec);
    *codec = std::make_unique<ExactCodec>(kernels, type, threads);
    return {};
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

void LevelsAllreduce::Channels::give_up(const Status& why) {
    for (const auto& channel : of_level) {
        if (channel != nullptr) channel->give_up(why);
    }
}

Status LevelsAllreduce::open_channels(Transport& channel, const LevelsPlan& plan, Channels* channels) {
    Status all;
    const auto open = [&](const std::vector<int>& exchange_of_rank, std::unique_ptr<Transport>* opened) {
        const Status status = catch_exceptions([&] { return channel.split(exchange_of_rank, opened); });
        if (all.ok()) all = status;
    };
    for (std::size_t l = 0; l < plan.lower.size(); ++l) open(plan.lower[l].exchange_of_rank, &channels->of_level[l]);
    open(plan.across_of_rank, &channels->of_level[plan.lower.size()]);
    return all;
}

Status LevelsAllreduce::create(Channels& channels, const Codec& codec, const Elements& elements, const Plan& plan,
                               std::unique_ptr<LevelsAllreduce>* algorithm) {
    std::unique_ptr<LevelsAllreduce> made(new LevelsAllreduce(channels, codec));
    ONEBIT_RETURN_IF_ERROR(made->make_levels(elements, plan));
    made->lay_out_results();
    made->flat_ = std::make_unique<FlatAllreduce>(
        codec, made->shard().count, static_cast<std::size_t>(made->across().rank()), made->groups(),
        FlatAllreduce::Extras{.op = plan.op, .messages = made->messages_.data() + made->first_words_[made->own_]});
    ONEBIT_RETURN_IF_ERROR(PipelinedFlat::create(made->across(), *made->flat_, PipelinedFlat::Way::kStraight,
                                                 plan.piece_blocks, kFirstTag, &made->between_groups_));
    ONEBIT_RETURN_IF_ERROR(made->plan_exchanges());
    made->make_stages();
    *algorithm = std::move(made);
    return {};
}

/// Each brings to the next what its ranks have averaged.
Status LevelsAllreduce::make_levels(const Elements& elements, const Plan& plan) {
    Chunk part = {0, 0, plan.count};
    onebit_datatype_t type = elements.type();
    shards_ = {part};
    for (std::size_t l = 0; l < plan.levels.lower.size(); ++l) {
        const LevelPlan& level = plan.levels.lower[l];
        std::unique_ptr<Codec> codec;
        ONEBIT_RETURN_IF_ERROR(make_level_codec(level, numeric_kernels(codec_.kernels()), type, plan.threads, &codec));
        Transport& channel = *channels_.of_level[l];
        lower_.push_back(std::make_unique<LowerLevel>(channel, std::move(codec), part, plan.op, plan.piece_blocks));
        if (level.codec) errors_.push_back({&lower_.back()->error(), part});
        part = lower_.back()->shard();
        type = ONEBIT_FLOAT32;
        codecs_.push_back(level.codec ? std::optional(level.codec->codec) : std::nullopt);

        own_ = own_ * lower_.back()->ranks() + static_cast<std::size_t>(channel.rank());
        std::vector<Chunk> shards;
        for (const Chunk& shard : shards_) {
            for (Chunk chunk : partition(shard.count, lower_.back()->ranks())) {
                chunk.begin += shard.begin;
                shards.push_back(chunk);
            }
        }
        shards_ = std::move(shards);
    }
    for (const auto& level : lower_) sources_.emplace_back(level->shard_values());
    codecs_.push_back(plan.codec);
    return {};
}

/// Room for the messages of all shards, and how they are decoded: a slice of a chunk in each step.
void LevelsAllreduce::lay_out_results() {
    first_words_ = {0};
    for (const Chunk& shard : shards_) {
        first_words_.push_back(first_words_.back() + FlatAllreduce::all_words(codec_, shard.count, groups()));
    }
    messages_ = AlignedBuffer<std::uint32_t>(first_words_.back());
    for (std::size_t s = 0; s < shards_.size(); ++s) {
        const std::uint32_t* message = messages_.data() + first_words_[s];
        for (Chunk chunk : partition(shards_[s].count, groups())) {
            const std::size_t row_words = codec_.row_words(chunk);
            chunk.begin += shards_[s].begin;
            for (std::size_t piece = 0; piece * SliceCursor::kSliceBlocks < chunk.blocks(); ++piece) {
                results_.push_back({Slice::piece_of(chunk, piece, SliceCursor::kSliceBlocks), message});
            }
            message += row_words;
        }
    }
}

/// The shards of a level are neighbours in messages_, and so are all that were made of each.
Status LevelsAllreduce::plan_exchanges() {
    std::size_t below = shards_.size(); // of the level's part
    for (const auto& level : lower_) {
        const std::size_t first = own_ / below * below;
        below /= level->ranks();
        std::vector<std::size_t> words;
        for (std::size_t s = 0; s < level->ranks(); ++s) {
            words.push_back(first_words_[first + (s + 1) * below] - first_words_[first + s * below]);
        }
        ONEBIT_RETURN_IF_ERROR(level->plan(kFirstTag, messages_.data() + first_words_[first], words));
    }
    return {};
}

void LevelsAllreduce::make_stages() {
    for (const auto& level : lower_) level->add_stages_up(&stages_);
    stages_.push_back({"exchange between groups", [this](Step* step) { return exchange_across(step); }});
    for (auto level = lower_.rbegin(); level != lower_.rend(); ++level) (*level)->add_stages_down(&stages_);
    stages_.push_back({"check results", [this](Step* step) { return check_results(step); }});
    stages_.push_back({"decode results", [this](Step* step) { return decode_results(step); }});
}

// ---------------------------------------------------------------------------------------------------- stages ----

void LevelsAllreduce::set_operands(const Operands& operands) {
    operands_ = operands;
    decoded_ = 0;
    for (std::size_t l = 0; l < lower_.size(); ++l) {
        lower_[l]->begin(l == 0 ? operands.source : &sources_[l - 1], operands.number);
    }
    between_groups_->set_operands({.source = &sources_.back(), .number = operands.number});
    inner_.start(between_groups_->stages());
}

/// What overflowed in one shard must be said by all ranks, whose shards are others: check_results sees it.
Status LevelsAllreduce::exchange_across(Step* step) {
    const Status status = inner_.advance(step);
    if (status.code() != ONEBIT_ERROR_NONFINITE) return status;
    *step = Step::kDone;
    return {};
}

/// All ranks see the same messages, and so come to the same verdict.
Status LevelsAllreduce::check_results(Step* step) {
    *step = Step::kDone;
    return codec_.first_overflowed(results_) == results_.size() ? Status() : fail(overflow(true));
}

Status LevelsAllreduce::decode_results(Step* step) {
    *step = Step::kDone;
    if (decoded_ == results_.size()) return {};
    codec_.decode(only(results_[decoded_++]), mask_.view(), *operands_.sink);
    const Status verdict = look_at_results(*operands_.sink);
    *step = Step::kAgain;
    return verdict.ok() ? Status() : fail(verdict);
}

Status LevelsAllreduce::fail(const Status& why) {
    for (const LevelError& level : errors_) level.error->reset();
    flat_->finish(why);
    return why;
}

// -------------------------------------------------------------------------------------------- state and info ----

void LevelsAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard) {
    ShardedForm::set_mask(std::move(mask), std::move(of_shard));
    for (const auto& level : lower_) {
        const std::span<const std::uint32_t> all = mask_.view();
        level->set_mask(all.empty() ? all : all.subspan(level->part().begin / kWordElements, level->part().words()));
    }
}

std::size_t LevelsAllreduce::workspace_bytes() const {
    std::size_t bytes = messages_.bytes() + mask_.bytes() + flat_->workspace_bytes();
    for (const auto& level : lower_) bytes += level->workspace_bytes();
    return bytes;
}

std::uint64_t LevelsAllreduce::bytes_sent() const {
    std::uint64_t bytes = 0;
    for (const auto& channel : channels_.of_level) bytes += channel == nullptr ? 0 : channel->bytes_sent();
    return bytes;
}

std::uint64_t LevelsAllreduce::bytes_across() const {
    const Chunk& own = flat_->own_chunk();
    std::uint64_t words = 0;
    for (const Chunk& chunk : flat_->chunks()) {
        if (chunk.index != own.index) words += codec_.message_words(chunk) + codec_.message_words(own);
    }
    return words * sizeof(std::uint32_t);
}

void LevelsAllreduce::fill_info(std::size_t level, onebit_level_info_t* info) const {
    const bool last = level == lower_.size();
    const Chunk part = last ? shard() : lower_[level]->part();
    info->ranks = static_cast<std::uint32_t>(channels_.of_level[level]->size());
    info->begin = part.begin;
    info->count = part.count;
    info->bytes = last ? bytes_across() : lower_[level]->bytes_per_call();
    info->compressed = codecs_[level] ? 1 : 0;
    info->codec = codecs_[level].value_or(ONEBIT_CODEC_SIGN);
}

void LevelsAllreduce::get_error(std::size_t level, float* error) const {
    if (level == lower_.size()) return flat_->worker().get_error(error);
    const LowerLevel& lower = *lower_[level];
    codecs_[level] ? lower.error().get_error(error) : static_cast<void>(std::fill_n(error, lower.part().count, 0.0F));
}

} // namespace onebit
