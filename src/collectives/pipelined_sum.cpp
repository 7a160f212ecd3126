// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/pipelined_sum.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Of all ranks' values that a rank has in one slot: 512 KiB, which stay in a core's cache on their way.
constexpr std::size_t kSlotElements = std::size_t{1} << 17;
constexpr std::size_t kLeastPiece = 4096;
constexpr std::size_t kMostPiece = std::size_t{1} << 16;

/// Those for whom `of_rank` says the same as for `rank`.
std::vector<int> ranks_alike(const std::vector<int>& of_rank, std::size_t rank) {
    std::vector<int> alike;
    for (std::size_t r = 0; r < of_rank.size(); ++r) {
        if (of_rank[r] == of_rank[rank]) alike.push_back(static_cast<int>(r));
    }
    return alike;
}

} // namespace

PipelinedSum::PipelinedSum(std::vector<Level> levels, const Elements& elements, std::size_t count, unsigned threads)
    : levels_(std::move(levels)),
      elements_(elements),
      threads_(threads),
      chunks_(partition(count, levels_.front().chunks * levels_.front().ranks.size())),
      pieces_(ceil_divide(longest(), std::clamp(kSlotElements / chunks_.size(), kLeastPiece, kMostPiece))),
      piece_elements_(ceil_divide(ceil_divide(longest(), pieces_), kWordElements) * kWordElements),
      slots_(chunks_.size() == 1 ? 0 : std::min(kSlots, pieces_)),
      parts_(chunks_.size()),
      taken_(exchanges()) {
    if (chunks_.size() == 1) {
        stages_ = {{"copy", [this](Step* step) { return copy(step); }}};
    } else {
        stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
    }
}

std::vector<PipelinedSum::Level> PipelinedSum::levels_of(const NodeGroups& nodes, const Elements& elements,
                                                         std::size_t rank) {
    const auto place_among = [rank](const std::vector<int>& ranks) {
        return static_cast<std::size_t>(std::ranges::find(ranks, static_cast<int>(rank)) - ranks.begin());
    };
    if (nodes.objection() != nullptr || elements.type() != ONEBIT_FLOAT32) {
        std::vector<int> all(nodes.node_of_rank.size());
        std::iota(all.begin(), all.end(), 0);
        return {{std::move(all), rank, 0, 1}};
    }
    Level node = {ranks_alike(nodes.node_of_rank, rank), 0, 0, nodes.nodes};
    node.own = place_among(node.ranks);
    Level across = {ranks_alike(nodes.place_of_rank, rank), 0, node.begin_of(node.own), 1};
    across.own = place_among(across.ranks);
    return {std::move(node), std::move(across)};
}

Status PipelinedSum::create(Transport& transport, const NodeGroups& nodes, const Elements& elements, std::size_t count,
                            unsigned threads, int tag, std::unique_ptr<Algorithm>* algorithm) {
    std::vector<Level> levels = levels_of(nodes, elements, static_cast<std::size_t>(transport.rank()));
    std::unique_ptr<PipelinedSum> made(new PipelinedSum(std::move(levels), elements, count, threads));
    for (Slot& slot : made->slots_) ONEBIT_RETURN_IF_ERROR(made->plan(transport, tag, &slot));
    *algorithm = std::move(made);
    return {};
}

std::size_t PipelinedSum::workspace_bytes() const {
    std::size_t bytes = 0;
    for (const Slot& slot : slots_) {
        bytes += slot.pieces.bytes() + slot.incoming.bytes();
    }
    return bytes;
}

void PipelinedSum::set_operands(const Operands& operands) {
    operands_ = operands;
    handed_out_ = 0;
    std::ranges::fill(taken_, 0);
}

/// Messages are as long as a whole piece, also where a chunk ends before that: by less than a word for each piece.
Status PipelinedSum::plan(Transport& transport, int tag, Slot* slot) {
    std::size_t most = 0;
    for (const Level& level : levels_) most = std::max(most, bytes_of_chunks((level.ranks.size() - 1) * level.chunks));
    slot->pieces = AlignedBuffer<std::byte>(bytes_of_chunks(chunks_.size()));
    slot->incoming = AlignedBuffer<std::byte>(most);
    slot->exchanges.resize(exchanges());
    for (std::size_t l = 0; l < levels_.size(); ++l) {
        const Level& level = levels_[l];
        const std::size_t bytes = bytes_of_chunks(level.chunks);
        std::vector<Part> send_values, receive_values, send_sum, receive_sums;
        for (std::size_t member = 0; member < level.ranks.size(); ++member) {
            if (member == level.own) continue;
            const int peer = level.ranks[member];
            send_values.push_back({peer, place_of(*slot, level.begin_of(member)), bytes});
            receive_values.push_back({peer, incoming_of(*slot, level, member), bytes});
            send_sum.push_back({peer, place_of(*slot, level.begin_of(level.own)), bytes});
            receive_sums.push_back({peer, place_of(*slot, level.begin_of(member)), bytes});
        }
        const std::size_t down = exchanges() - 1 - l;
        ONEBIT_RETURN_IF_ERROR(transport.plan_exchange(std::move(send_values), std::move(receive_values),
                                                       tag + static_cast<int>(l), &slot->exchanges[l]));
        ONEBIT_RETURN_IF_ERROR(transport.plan_exchange(std::move(send_sum), std::move(receive_sums),
                                                       tag + static_cast<int>(down), &slot->exchanges[down]));
    }
    return {};
}

Chunk PipelinedSum::piece_of(std::size_t chunk, std::size_t piece) const {
    const Chunk& whole = chunks_[chunk];
    const std::size_t first = std::min(piece * piece_elements_, whole.count);
    return {piece, whole.begin + first, std::min(piece_elements_, whole.count - first)};
}

std::byte* PipelinedSum::incoming_of(Slot& slot, const Level& level, std::size_t member) const {
    const std::size_t among_others = member - (member > level.own ? 1 : 0);
    return slot.incoming.data() + bytes_of_chunks(among_others * level.chunks);
}

void PipelinedSum::copy_elements(const void* from, std::size_t count, void* to) const {
    if (count > 0) std::memcpy(to, from, count * elements_.bytes());
}

// ---------------------------------------------------------------------------------------------- the one stage ----

/// Of one rank: it is the average.
Status PipelinedSum::copy(Step* step) {
    *step = Step::kDone;
    if (operands_.input != operands_.output) copy_elements(operands_.input, longest(), operands_.output);
    return {};
}

/// What others wait for comes first, and of that what has come furthest; then what keeps the wire busy, then what only
/// this rank needs.
Status PipelinedSum::advance(Step* step) {
    const std::size_t last = exchanges() - 1;
    bool did = false;
    for (std::size_t exchange = last; exchange-- > 0;) ONEBIT_RETURN_IF_ERROR(take_next(exchange, &did));
    ONEBIT_RETURN_IF_ERROR(hand_out_next(&did));
    ONEBIT_RETURN_IF_ERROR(take_next(last, &did));
    *step = taken_[last] == pieces_ ? Step::kDone : did ? Step::kAgain : Step::kWait;
    return {};
}

Status PipelinedSum::hand_out_next(bool* did) {
    if (handed_out_ == pieces_ || handed_out_ == taken_.back() + slots_.size()) return {};
    hand_out(handed_out_);
    *did = true;
    return slot_of(handed_out_++).exchanges.front()->start();
}

/// The next piece that comes out of an exchange goes into the next one.
Status PipelinedSum::take_next(std::size_t exchange, bool* did) {
    const std::size_t piece = taken_[exchange];
    if (piece == (exchange == 0 ? handed_out_ : taken_[exchange - 1])) return {};
    Slot& slot = slot_of(piece);
    bool here = false;
    ONEBIT_RETURN_IF_ERROR(slot.exchanges[exchange]->test(&here));
    if (!here) return {};
    *did = true;
    ++taken_[exchange];
    if (exchange < levels_.size()) add_up(exchange, piece);
    if (exchange + 1 < exchanges()) return slot.exchanges[exchange + 1]->start();
    collect(piece);
    return {};
}

/// Of the first level: what others add up.
void PipelinedSum::hand_out(std::size_t piece) {
    Slot& slot = slot_of(piece);
    const Level& level = levels_.front();
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
        if (c / level.chunks == level.own) continue;
        const Chunk part = piece_of(c, piece);
        copy_elements(elements_.at(operands_.input, part.begin), part.count, place_of(slot, c));
    }
}

/// What this rank has of a level afterwards; of the last one the sum, in both places.
void PipelinedSum::add_up(std::size_t number, std::size_t piece) {
    Slot& slot = slot_of(piece);
    const Level& level = levels_[number];
    const std::size_t members = level.ranks.size();
    const float share = operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(members);
    for (std::size_t c = 0; c < level.chunks; ++c) {
        const Chunk part = piece_of(level.begin_of(level.own) + c, piece);
        void* const sum = place_of(slot, level.begin_of(level.own) + c);
        void* const output = number + 1 == levels_.size() ? elements_.at(operands_.output, part.begin) : sum;
        for (std::size_t member = 0; member < members; ++member) {
            parts_[member] = incoming_of(slot, level, member) + bytes_of_chunks(c);
        }
        parts_[level.own] = number == 0 ? elements_.at(operands_.input, part.begin) : sum;
        parallel_for(0, part.blocks(), threads_, [&](std::size_t index) {
            const Block block = {part, index};
            const std::size_t first = index * kBlockElements;
            elements_.mean(parts_.data(), members, first, share, block.count(), Stores::kCached,
                           elements_.at(sum, first), Stores::kCached, elements_.at(output, first));
        });
    }
}

void PipelinedSum::collect(std::size_t piece) {
    Slot& slot = slot_of(piece);
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
        if (c == own_chunk()) continue;
        const Chunk part = piece_of(c, piece);
        copy_elements(place_of(slot, c), part.count, elements_.at(operands_.output, part.begin));
    }
}

} // namespace onebit
