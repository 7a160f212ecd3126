// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/device_two_level.hpp"

#include <algorithm>
#include <utility>

namespace onebit {
namespace {

/// Exchanges of the node's channel.
enum Tag : int { kAverageTag = 0, kSharingTag = 1 };

/// Pieces of other forms that make one piece here, where each takes an exchange and some launches.
constexpr std::size_t kPiecesAtOnce = 4;

/// A stage that puts work into the stream and is done.
template <typename Body>
Stage work_stage(const char* name, const Body& body) {
    return {name, [body](Step* step) {
                *step = Step::kDone;
                return body();
            }};
}

} // namespace

// -------------------------------------------------------------------------------------------------- creation ----

/// Every rank helps to make both, whatever fails: the others wait for it in NCCL's, and count on it in the other one.
Status DeviceTwoLevel::open_channels(Transport& channel, Communicator& communicator, const MemoryBackend& backend,
                                     Channels* channels) {
    const std::vector<int>& places = communicator.groups().place_of_rank;
    const Status across = catch_exceptions([&] { return channel.split(places, &channels->across); });
    const Status node = catch_exceptions([&] { return communicator.open_node_channel(&channels->node); });
    ONEBIT_RETURN_IF_ERROR(across);
    ONEBIT_RETURN_IF_ERROR(node);
    ONEBIT_RETURN_IF_ERROR(backend.reach(communicator.environment(), &channels->across));
    return backend.reach(communicator.environment(), &channels->node);
}

DeviceTwoLevel::DeviceTwoLevel(Channels& channels, const Codec& codec, onebit_op_t op,
                               std::unique_ptr<Arithmetic> arithmetic, std::size_t count, std::size_t piece_blocks)
    : TwoLevelForm(channels, codec, op, count), arithmetic_(std::move(arithmetic)), first_words_{0} {
    std::size_t steps = 0;
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        pieces_.push_back(cut(chunks_of(place), kPiecesAtOnce * piece_blocks));
        steps = std::max(steps, pieces_[place].size());
        for (const Piece& piece : pieces_[place]) slot_elements_ = std::max(slot_elements_, piece.count);
        first_words_.push_back(first_words_.back() + FlatAllreduce::all_words(codec, shards_[place].count, nodes_));
    }
    for (std::vector<Piece>& pieces : pieces_) pieces.resize(steps);
    slot_elements_ = ceil_divide(slot_elements_, kWordElements) * kWordElements; // so that all slots are aligned
    slots_ = AlignedBuffer<float>((2 * shards_.size() - 1) * slot_elements_, codec.memory());
    for (std::size_t place = 0; place < shards_.size(); ++place) to_be_averaged_.push_back(incoming(place));
    messages_ = AlignedBuffer<std::uint32_t>(first_words_.back(), codec.memory());
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const std::uint32_t* message = messages_of(place);
        for (Chunk chunk : chunks_of(place)) {
            chunk.begin += shards_[place].begin;
            results_.push_back({Slice::whole(chunk), message});
            message += codec.row_words(chunk);
        }
    }
    make_flat({}, messages_of(place_));
}

/// Into pieces of at most as many elements as `most_blocks` blocks.
std::vector<DeviceTwoLevel::Piece> DeviceTwoLevel::cut(const std::vector<Chunk>& chunks, std::size_t most_blocks) {
    std::vector<Piece> pieces;
    SliceCursor cursor(most_blocks);
    for (Slice slice; cursor.next(chunks, &slice);) {
        const std::size_t count = slice.count();
        if (pieces.empty() || pieces.back().count + count > most_blocks * kBlockElements) {
            pieces.push_back({.begin = slice.begin()});
        }
        pieces.back().count += count;
        pieces.back().slices.push_back(slice);
    }
    return pieces;
}

Status DeviceTwoLevel::create(Channels& channels, const Codec& codec, onebit_op_t op,
                              std::unique_ptr<Arithmetic> arithmetic, std::size_t count, std::size_t piece_blocks,
                              int tag, std::unique_ptr<TwoLevelForm>* algorithm) {
    std::unique_ptr<DeviceTwoLevel> made(
        new DeviceTwoLevel(channels, codec, op, std::move(arithmetic), count, piece_blocks));
    DeviceTwoLevel& self = *made;
    ONEBIT_RETURN_IF_ERROR(self.plan_average(kAverageTag));
    ONEBIT_RETURN_IF_ERROR(self.plan_exchange_between_nodes(tag));
    ONEBIT_RETURN_IF_ERROR(self.plan_exchange_in_node(kSharingTag));
    self.stages_.push_back(work_stage("decode", [&self] {
        self.decode();
        return Status();
    }));
    self.stages_.push_back({"finish", [&self](Step* step) { return self.finish(step); }});
    *algorithm = std::move(made);
    return {};
}

/// The stages until all chunks are encoded. By messages even where all pieces are equally long: NCCL's all-to-all would
/// copy this rank's own piece, too, which is added up where it is.
Status DeviceTwoLevel::plan_average(int tag) {
    const std::vector<Piece>& own = pieces_[place_];
    for (std::size_t t = 0; t < own.size(); ++t) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (std::size_t place = 0; place < shards_.size(); ++place) {
            if (place == place_) continue;
            const int peer = static_cast<int>(place);
            sends.push_back({peer, outgoing(place), pieces_[place][t].count * sizeof(float), on_device()});
            receives.push_back({peer, incoming(place), own[t].count * sizeof(float), on_device()});
        }
        ONEBIT_RETURN_IF_ERROR(
            channels_.node->plan_exchange(std::move(sends), std::move(receives), tag, &averaging_.emplace_back()));
        Exchange& exchange = *averaging_.back();
        stages_.push_back(work_stage("hand out values", [this, t] {
            hand_out(t);
            return arithmetic_->failure();
        }));
        stages_.push_back(start_stage("send values", exchange));
        stages_.push_back(wait_stage("receive values", exchange));
        stages_.push_back(work_stage("average and encode values", [this, t] {
            average_and_encode(t);
            return arithmetic_->failure();
        }));
    }
    stages_.push_back(work_stage("seal chunks", [this] {
        flat_->scatter().seal();
        return Status();
    }));
    return {};
}

Status DeviceTwoLevel::plan_exchange_between_nodes(int tag) {
    ONEBIT_RETURN_IF_ERROR(PlainFlat::create(*channels_.across, *flat_, PlainFlat::kDirect, tag, &between_nodes_));
    const std::span<const Stage> exchange = between_nodes_->exchange_stages();
    stages_.insert(stages_.end(), exchange.begin(), exchange.end());
    return {};
}

/// Of the shards' messages.
Status DeviceTwoLevel::plan_exchange_in_node(int tag) {
    ONEBIT_RETURN_IF_ERROR(plan_sharing(tag));
    stages_.push_back(start_stage("share the shard's result", *sharing_));
    stages_.push_back(wait_stage("receive the shards' results", *sharing_));
    return {};
}

/// Where the messages are equally long, by the transport's own all-gather. All ranks of a node know this alike: the
/// shards follow from the numbers of elements, ranks and nodes.
Status DeviceTwoLevel::plan_sharing(int tag) {
    const std::size_t row_words = first_words_[1];
    bool equal = true;
    for (std::size_t place = 1; place <= shards_.size(); ++place) equal &= first_words_[place] == place * row_words;
    if (equal && on_device() && channels_.node->has_native(Pattern::kAllGather)) {
        return channels_.node->plan_native(Pattern::kAllGather, messages_of(place_), messages_.data(),
                                           row_words * sizeof(std::uint32_t), &sharing_);
    }
    const auto part = [&](std::size_t peer, std::size_t owner) {
        const std::size_t words = first_words_[owner + 1] - first_words_[owner];
        return Part{static_cast<int>(peer), messages_of(owner), words * sizeof(std::uint32_t), on_device()};
    };
    std::vector<Part> sends;
    std::vector<Part> receives;
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        if (place == place_) continue;
        sends.push_back(part(place, place_));
        receives.push_back(part(place, place));
    }
    return channels_.node->plan_exchange(std::move(sends), std::move(receives), tag, &sharing_);
}

float* DeviceTwoLevel::incoming(std::size_t place) {
    if (place == place_) return outgoing(place);
    return outgoing(shards_.size() + place - (place > place_ ? 1 : 0));
}

std::size_t DeviceTwoLevel::workspace_bytes() const {
    return slots_.bytes() + messages_.bytes() + mask_.bytes() + flat_->workspace_bytes();
}

// ---------------------------------------------------------------------------------------------------- stages ----

void DeviceTwoLevel::set_operands(const Operands& operands) {
    operands_ = operands;
    flat_->set_operands({.source = &piece_source_, .number = operands.number});
}

void DeviceTwoLevel::hand_out(std::size_t step) {
    for (std::size_t place = 0; place < shards_.size(); ++place) {
        const Piece& piece = pieces_[place][step];
        const float* const values = operands_.float_input() + shards_[place].begin + piece.begin;
        arithmetic_->multiply(values, 1, piece.count, outgoing(place));
    }
}

/// In the order of places.
void DeviceTwoLevel::average_and_encode(std::size_t step) {
    const Piece& piece = pieces_[place_][step];
    float* const average = to_be_averaged_.front();
    arithmetic_->sum(to_be_averaged_, share_in_node(), piece.count, average);
    piece_source_ = ArraySource(average - piece.begin);
    flat_->scatter().encode(piece.slices);
}

/// All ranks of all nodes see the same messages, and so come to the same verdict.
void DeviceTwoLevel::decode() {
    overflowed_ = codec_.first_overflowed(results_) < results_.size();
    codec_.decode(results_, mask_.view(), ArraySink(operands_.float_output()));
}

Status DeviceTwoLevel::finish(Step* step) {
    std::size_t element = Codec::kNoElement;
    const bool known = codec_.find_overflow(&element);
    *step = known ? Step::kDone : Step::kInStream;
    if (!known) return {};
    Status verdict = codec_.failure();
    if (verdict.ok() && (overflowed_ || element != Codec::kNoElement)) verdict = overflow(true);
    flat_->finish(verdict);
    return verdict;
}

} // namespace onebit
