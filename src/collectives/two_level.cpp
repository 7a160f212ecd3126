// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/two_level.hpp"

#include <algorithm>
#include <utility>

#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Elements that are shared at a time: two slots for each neighbour stay in the second cache, or the third.
constexpr std::size_t kSlotElements = 16 * kBlockElements;
/// The counter's share of a segment: a cache line of its own.
constexpr std::size_t kCounterBytes = 64;
/// Slots take turns, so that a piece can be written while the one before it is still read.
constexpr std::size_t kTurns = 2;

std::size_t longest(const std::vector<Chunk>& shards) {
    return std::max_element(shards.begin(), shards.end(),
                            [](const Chunk& a, const Chunk& b) { return a.count < b.count; })
        ->count;
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

TwoLevelAllreduce::Layout::Layout(const Codec& codec, const std::vector<Chunk>& shards, std::size_t nodes) {
    slot_elements = std::min(kSlotElements, ceil_divide(longest(shards), kWordElements) * kWordElements);
    messages_at = kCounterBytes + kTurns * shards.size() * slot_elements * sizeof(float);
    bytes = messages_at + FlatAllreduce::all_words(codec, longest(shards), nodes) * sizeof(std::uint32_t);
}

Status TwoLevelAllreduce::open_channels(Transport& channel, const NodeGroups& groups, const Codec& codec,
                                        std::size_t count, Channels* channels) {
    ONEBIT_RETURN_IF_ERROR(channel.split(groups.node_of_rank, &channels->node));
    ONEBIT_RETURN_IF_ERROR(channel.split(groups.place_of_rank, &channels->across));
    const Layout layout(codec, partition(count, groups.places), groups.nodes);
    return channels->node->share_memory(layout.bytes, &channels->memory);
}

TwoLevelAllreduce::TwoLevelAllreduce(Channels channels, const Codec& codec, std::size_t count, unsigned threads)
    : codec_(codec),
      threads_(threads),
      channels_(std::move(channels)),
      place_(static_cast<std::size_t>(channels_.node->rank())),
      shards_(partition(count, static_cast<std::size_t>(channels_.node->size()))),
      layout_(codec, shards_, static_cast<std::size_t>(channels_.across->size())),
      pieces_(ceil_divide(longest(shards_), layout_.slot_elements)),
      node_average_(shard().count) {
    const auto nodes = static_cast<std::size_t>(channels_.across->size());
    for (const Chunk& shard : shards_) chunks_.push_back(partition(shard.count, nodes));
    source_ = ArraySource(node_average_.data());
    flat_ = std::make_unique<FlatAllreduce>(codec, shard().count, static_cast<std::size_t>(channels_.across->rank()),
                                            nodes, FlatAllreduce::Extras{.messages = messages_of(place_)});
    stages_ = {
        {"average in the node", [this](Step* step) { return average_in_node(step); }},
        {"exchange between nodes", [this](Step* step) { return exchange_between_nodes(step); }},
        {"await the node's messages", [this](Step* step) { return await_messages(step); }},
        {"check messages", [this](Step* step) { return check_messages(step); }},
        {"decode messages", [this](Step* step) { return decode_messages(step); }},
    };
}

Status TwoLevelAllreduce::create(Channels channels, const Codec& codec, std::size_t count, std::size_t piece_blocks,
                                 unsigned threads, int tag, std::unique_ptr<TwoLevelAllreduce>* algorithm) {
    std::unique_ptr<TwoLevelAllreduce> made(new TwoLevelAllreduce(std::move(channels), codec, count, threads));
    ONEBIT_RETURN_IF_ERROR(
        PipelinedFlat::create(*made->channels_.across, *made->flat_, piece_blocks, tag, &made->between_nodes_));
    *algorithm = std::move(made);
    return {};
}

// ----------------------------------------------------------------------------------------- the node's memory ----

std::atomic_ref<std::uint64_t> TwoLevelAllreduce::meetings_of(std::size_t place) {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(channels_.memory->of(static_cast<int>(place))));
}

float* TwoLevelAllreduce::slot(std::size_t owner, std::size_t reader, std::size_t piece) {
    auto* const slots = reinterpret_cast<float*>(channels_.memory->of(static_cast<int>(owner)) + kCounterBytes);
    return slots + (piece % kTurns * shards_.size() + reader) * layout_.slot_elements;
}

std::uint32_t* TwoLevelAllreduce::messages_of(std::size_t place) {
    return reinterpret_cast<std::uint32_t*>(channels_.memory->of(static_cast<int>(place)) + layout_.messages_at);
}

Chunk TwoLevelAllreduce::piece_of(std::size_t place, std::size_t piece) const {
    const Chunk& shard = shards_[place];
    const std::size_t begin = std::min(piece * layout_.slot_elements, shard.count);
    return {place, shard.begin + begin, std::min(layout_.slot_elements, shard.count - begin)};
}

void TwoLevelAllreduce::come_to_meeting() {
    meetings_of(place_).store(++meetings_, std::memory_order_release);
}

bool TwoLevelAllreduce::all_have_come() {
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        if (meetings_of(place).load(std::memory_order_acquire) < meetings_) return false;
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------- stages ----

void TwoLevelAllreduce::set_operands(const Operands& operands) {
    operands_ = operands;
    between_nodes_->set_operands({.source = &source_});
    inner_.start(between_nodes_->stages());
    shared_ = averaged_ = decoded_ = 0;
    cursor_.restart();
}

/// Piece by piece: write what the neighbours need, meet them, average what they wrote.
Status TwoLevelAllreduce::average_in_node(Step* step) {
    *step = Step::kAgain;
    if (averaged_ == pieces_) {
        *step = Step::kDone;
    } else if (shared_ == averaged_) {
        share(shared_++);
        come_to_meeting();
    } else if (all_have_come()) {
        average(averaged_++);
    } else {
        *step = Step::kWait;
    }
    return {};
}

void TwoLevelAllreduce::share(std::size_t piece) {
    for (std::size_t reader = 0; reader < shards_.size(); ++reader) {
        if (reader == place_) continue;
        const Chunk part = piece_of(reader, piece);
        std::copy_n(operands_.input + part.begin, part.count, slot(place_, reader, piece));
    }
}

/// In the order of places, block by block, so that a sum is in the cache while it grows.
void TwoLevelAllreduce::average(std::size_t piece) {
    const Chunk part = piece_of(place_, piece);
    const float share = 1.0F / static_cast<float>(shards_.size());
    parallel_for(0, part.blocks(), threads_, [&](std::size_t index) {
        const std::size_t begin = index * kBlockElements;
        const std::size_t count = Block{part, index}.count();
        float* const average = node_average_.data() + (part.begin - shard().begin) + begin;
        for (std::size_t place = 0; place < shards_.size(); ++place) {
            const float* const values =
                (place == place_ ? operands_.input + part.begin : slot(place, place_, piece)) + begin;
            for (std::size_t i = 0; i < count; ++i) average[i] = place == 0 ? values[i] : average[i] + values[i];
        }
        for (std::size_t i = 0; i < count; ++i) average[i] *= share;
    });
}

Status TwoLevelAllreduce::exchange_between_nodes(Step* step) {
    const Status status = inner_.advance(step);
    // What overflowed in one shard must be said by all ranks: check_messages does.
    if (!status.ok() && status.code() != ONEBIT_ERROR_NONFINITE) return status;
    if (!status.ok()) *step = Step::kDone;
    if (*step == Step::kDone) come_to_meeting();
    return {};
}

Status TwoLevelAllreduce::await_messages(Step* step) {
    *step = all_have_come() ? Step::kDone : Step::kWait;
    return {};
}

/// All ranks of all nodes see the same messages.
Status TwoLevelAllreduce::check_messages(Step* step) {
    *step = Step::kDone;
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const std::uint32_t* message = messages_of(place);
        for (const Chunk& chunk : chunks_[place]) {
            if (!codec_.is_finite(message, Slice::whole(chunk))) {
                flat_->worker().reset();
                flat_->server().reset();
                const std::size_t begin = shards_[place].begin + chunk.begin;
                return Status::error(ONEBIT_ERROR_NONFINITE,
                                     "the sum of values and error overflowed float32 among elements %zu to %zu; the "
                                     "error state has been reset",
                                     begin, begin + chunk.count - 1);
            }
            message += codec_.message_words(chunk);
        }
    }
    return {};
}

Status TwoLevelAllreduce::decode_messages(Step* step) {
    *step = Step::kAgain;
    if (decoded_ == shards_.size()) {
        *step = Step::kDone;
        return {};
    }
    Slice slice;
    if (!cursor_.next(chunks_[decoded_], &slice)) {
        cursor_.restart();
        ++decoded_;
        return {};
    }
    const Chunk& shard = shards_[decoded_];
    const std::uint32_t* message = messages_of(decoded_);
    for (std::size_t c = 0; c < slice.chunk.index; ++c) message += codec_.message_words(chunks_[decoded_][c]);
    const ArraySink sink(operands_.output + shard.begin);
    const std::span<const std::uint32_t> mask = mask_.view();
    codec_.decode(message, slice, mask.empty() ? mask : mask.subspan(shard.begin / kWordElements), sink);
    return {};
}

// ----------------------------------------------------------------------------------------------------- state ----

void TwoLevelAllreduce::set_mask(AlignedBuffer<std::uint32_t> mask) {
    AlignedBuffer<std::uint32_t> part(mask.size() == 0 ? 0 : shard().words());
    std::copy_n(mask.data() + shard().begin / kWordElements, part.size(), part.data());
    flat_->set_mask(std::move(part));
    mask_ = std::move(mask);
}

std::size_t TwoLevelAllreduce::workspace_bytes() const {
    return layout_.bytes + node_average_.bytes() + mask_.bytes() + flat_->workspace_bytes();
}

} // namespace onebit
