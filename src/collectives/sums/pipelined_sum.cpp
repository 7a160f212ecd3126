// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/sums/pipelined_sum.hpp"

#include <algorithm>
#include <utility>

#include "core/copy_bytes.hpp"
#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Of all ranks' values that a rank has in one slot: 512 KiB, which stay in a core's cache on their way.
constexpr std::size_t kSlotElements = std::size_t{1} << 17;
constexpr std::size_t kLeastPiece = 4096;
constexpr std::size_t kMostPiece = std::size_t{1} << 16;

} // namespace

PipelinedSum::PipelinedSum(std::vector<SumLevel> levels, const Elements& elements, std::size_t count, unsigned threads)
    : levels_(std::move(levels)),
      elements_(elements),
      threads_(threads),
      chunks_(partition(count, levels_.front().members() * levels_.front().chunks)),
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

Status PipelinedSum::create(Transport& transport, const NodeGroups& nodes, const Elements& elements, std::size_t count,
                            unsigned threads, int tag, std::unique_ptr<Algorithm>* algorithm) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    std::vector<SumLevel> levels = elements.type() == ONEBIT_FLOAT32
                                       ? sum_levels(nodes, rank)
                                       : one_sum_level(static_cast<std::size_t>(transport.size()), rank);
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
    for (const SumLevel& level : levels_) most = std::max(most, bytes_of_chunks((level.members() - 1) * level.chunks));
    slot->pieces = AlignedBuffer<std::byte>(bytes_of_chunks(chunks_.size()));
    slot->incoming = AlignedBuffer<std::byte>(most);
    slot->exchanges.resize(exchanges());
    for (std::size_t l = 0; l < levels_.size(); ++l) {
        const SumLevel& level = levels_[l];
        const std::size_t bytes = bytes_of_chunks(level.chunks);
        std::vector<Part> send_values, receive_values, send_sum, receive_sums;
        for (std::size_t member = 0; member < level.members(); ++member) {
            if (member == level.own) continue;
            const int peer = level.ranks[member];
            send_values.push_back({peer, place_of(*slot, level.begin_of(member)), bytes});
            receive_values.push_back({peer, incoming_of(*slot, level, member), bytes});
            send_sum.push_back({peer, place_of(*slot, level.own_begin()), bytes});
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

std::byte* PipelinedSum::incoming_of(Slot& slot, const SumLevel& level, std::size_t member) const {
    return slot.incoming.data() + bytes_of_chunks(level.among_others(member) * level.chunks);
}

void PipelinedSum::copy_elements(const void* from, std::size_t count, void* to) const {
    copy_bytes(to, from, count * elements_.bytes());
}

// ---------------------------------------------------------------------------------------------- the one stage ----

/// For one rank: its values are the average.
Status PipelinedSum::copy(Step* step) {
    *step = Step::kDone;
    if (operands_.input != operands_.output) copy_elements(operands_.input, longest(), operands_.output);
    return {};
}

/// Work that others wait for comes first, the furthest piece before others. Then comes work that keeps the wire busy,
/// then work that only this rank needs.
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

/// Of the first level: the values that others add up.
void PipelinedSum::hand_out(std::size_t piece) {
    Slot& slot = slot_of(piece);
    const SumLevel& level = levels_.front();
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
        if (c / level.chunks == level.own) continue;
        const Chunk part = piece_of(c, piece);
        copy_elements(elements_.at(operands_.input, part.begin), part.count, place_of(slot, c));
    }
}

/// The sums that this rank has after a level; after the last one, in the slot and in the output.
void PipelinedSum::add_up(std::size_t number, std::size_t piece) {
    Slot& slot = slot_of(piece);
    const SumLevel& level = levels_[number];
    const std::size_t members = level.members();
    const float share = operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(members);
    for (std::size_t c = 0; c < level.chunks; ++c) {
        const Chunk part = piece_of(level.own_begin() + c, piece);
        void* const sum = place_of(slot, level.own_begin() + c);
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
