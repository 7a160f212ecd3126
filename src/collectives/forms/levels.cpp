// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/levels.hpp"

#include <algorithm>
#include <utility>

#include "compress/exact/exact_codec.hpp"
#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Of each level's channel; between the last groups the flat form's.
constexpr int kFirstTag = 0;
constexpr int kTags = 4; // PipelinedFlat's; a LowerLevel has three
static_assert(kFirstTag + kTags <= kSplitTags && kMostLevels + 1 <= kMostSplits);

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
                               const FlatAllreduce::Extras& extras, bool sources,
                               std::unique_ptr<LevelsAllreduce>* algorithm) {
    std::unique_ptr<LevelsAllreduce> made(new LevelsAllreduce(channels, codec, plan.threads));
    ONEBIT_RETURN_IF_ERROR(made->make_levels(elements, plan));
    made->lay_out_results(extras.rounds());
    if (sources) {
        made->shares_ = AlignedBuffer<float>(plan.count);
        made->shares_source_ = ArraySource(made->shares_.data());
    }
    FlatAllreduce::Extras of_shard = extras;
    of_shard.messages = made->messages_of(made->own_, 0).data();
    made->flat_ = std::make_unique<FlatAllreduce>(
        codec, made->shard().count, static_cast<std::size_t>(made->across().rank()), made->groups(), of_shard);
    ONEBIT_RETURN_IF_ERROR(PipelinedFlat::create(made->across(), *made->flat_, PipelinedFlat::Way::kStraight,
                                                 plan.piece_blocks, kFirstTag, &made->between_groups_));
    ONEBIT_RETURN_IF_ERROR(made->plan_exchanges());
    made->make_stages();
    *algorithm = std::move(made);
    return {};
}

/// Each level brings its ranks' averages to the next one.
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
    codecs_.push_back(plan.codec);
    return {};
}

/// A shard's messages of all rounds lie one behind the other, as the flat form wants them.
void LevelsAllreduce::lay_out_results(std::size_t rounds) {
    first_words_ = {0};
    for (const Chunk& shard : shards_) {
        first_words_.push_back(first_words_.back() + FlatAllreduce::all_words(codec_, shard.count, groups()));
    }
    messages_ = AlignedBuffer<std::uint32_t>(rounds * first_words_.back());
    rounds_ = rounds;
    results_.emplace(*this, codec_, shards_, groups(), rounds,
                     [this](std::size_t shard, std::size_t round) { return messages_of(shard, round).data(); });
}

LowerLevel::Words LevelsAllreduce::messages_of(std::size_t shard, std::size_t round) {
    const std::size_t words = first_words_[shard + 1] - first_words_[shard];
    return {messages_.data() + rounds_ * first_words_[shard] + round * words, words};
}

/// All shards that are made of a rank's part of a level follow each other.
Status LevelsAllreduce::plan_exchanges() {
    std::size_t below = shards_.size(); // of the level's part
    for (const auto& level : lower_) {
        const std::size_t first = own_ / below * below;
        below /= level->ranks();
        std::vector<std::vector<std::vector<LowerLevel::Words>>> results(rounds_);
        for (std::size_t round = 0; round < rounds_; ++round) {
            for (std::size_t rank = 0; rank < level->ranks(); ++rank) {
                std::vector<LowerLevel::Words>& of_rank = results[round].emplace_back();
                for (std::size_t s = 0; s < below; ++s) {
                    of_rank.push_back(messages_of(first + rank * below + s, round));
                }
            }
        }
        ONEBIT_RETURN_IF_ERROR(level->plan(kFirstTag, results));
    }
    return {};
}

void LevelsAllreduce::make_stages() {
    if (shares_.size() > 0) {
        stages_.push_back({"take shares", [this](Step* step) { return take_shares(step); }});
    }
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
    cursor_.restart();
    const std::size_t round = flat_->current_round();
    const bool encodes = operands.source != nullptr;
    const ValueSource* source = operands.input != nullptr ? operands.source : encodes ? &shares_source_ : nullptr;
    for (std::size_t l = 0; l < lower_.size(); ++l) {
        lower_[l]->begin(source, operands.number, round);
        source = encodes ? &lower_[l]->shard_source() : nullptr;
    }
    between_groups_->set_operands(
        {.source = encodes ? &group_average_ : nullptr, .number = operands.number, .tentative = operands.tentative});
    inner_.start(between_groups_->stages());
}

/// The source's blocks are those of the whole buffer's chunks, which the first level cuts in another way.
Status LevelsAllreduce::take_shares(Step* step) {
    *step = Step::kDone;
    Slice slice;
    if (operands_.input != nullptr || operands_.source == nullptr || !cursor_.next(results_->chunks(), &slice)) {
        cursor_.restart();
        return {};
    }
    parallel_for(slice.first_block, slice.end_block, threads_, [&](std::size_t index) {
        const Block block = {slice.chunk, index};
        float* const to = shares_.data() + block.begin();
        const float* const share = operands_.source->read_share(block, to);
        if (share != to) std::copy_n(share, block.count(), to);
    });
    *step = Step::kAgain;
    return {};
}

BlockValues LevelsAllreduce::GroupAverage::read(const Block& block, float*) const {
    float* const mean = owner_.lower_.back()->shard_values() + block.begin();
    const Operands& operands = owner_.operands_;
    if (operands.input != nullptr) return {mean};
    return operands.source->of_mean(owner_.results_->whole_block(owner_.own_, block), mean);
}

/// All ranks must report an overflow in one shard, also ranks of other shards: check_results sees it.
Status LevelsAllreduce::exchange_across(Step* step) {
    const Status status = inner_.advance(step);
    if (status.code() != ONEBIT_ERROR_NONFINITE) return status;
    *step = Step::kDone;
    return {};
}

/// All ranks see the same messages, and so come to the same verdict.
Status LevelsAllreduce::check_results(Step* step) {
    *step = Step::kDone;
    for (std::size_t s = 0; s < shards_.size(); ++s) {
        for (const Chunk& chunk : results_->chunks_of(s)) {
            const EncodedSlice encoded = results_->encoded(s, flat_->gather().round(), Slice::whole(chunk));
            if (codec_.first_overflowed(only(encoded)) == 0) return fail(overflow(!awaits_commit()));
        }
    }
    return {};
}

/// A slice of some shard.
Status LevelsAllreduce::decode_results(Step* step) {
    *step = Step::kDone;
    if (operands_.sink == nullptr || decoded_ == shards_.size()) return {};
    *step = Step::kAgain;
    Slice slice;
    if (!cursor_.next(results_->chunks_of(decoded_), &slice)) {
        ++decoded_;
        cursor_.restart();
        return {};
    }
    results_->decode(decoded_, flat_->gather().round(), slice, *operands_.sink);
    const Status verdict = look_at_results(*operands_.sink);
    return verdict.ok() ? Status() : fail(verdict);
}

Status LevelsAllreduce::fail(const Status& why) {
    if (awaits_commit()) return why;
    for (const LevelError& level : errors_) level.error->reset();
    flat_->forget();
    return why;
}

// -------------------------------------------------------------------------------------------- state and info ----

void LevelsAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard) {
    const AlignedBuffer<std::uint32_t> old = std::exchange(mask_, std::move(mask)); // the levels still use it
    for (const auto& level : lower_) {
        const std::span<const std::uint32_t> all = mask_.view();
        level->set_mask(all.empty() ? all : all.subspan(level->part().begin / kWordElements, level->part().words()));
    }
    flat_->set_mask(std::move(of_shard));
}

std::size_t LevelsAllreduce::workspace_bytes() const {
    std::size_t bytes = messages_.bytes() + shares_.bytes() + mask_.bytes() + flat_->workspace_bytes();
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
