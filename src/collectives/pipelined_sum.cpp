// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/pipelined_sum.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/parallel.hpp"

namespace onebit {
namespace {

/// Of all ranks' values that a rank has in one slot: 512 KiB, which stay in a core's cache on their way.
constexpr std::size_t kSlotElements = std::size_t{1} << 17;
constexpr std::size_t kLeastPiece = 4096;
constexpr std::size_t kMostPiece = std::size_t{1} << 16;

} // namespace

PipelinedSum::PipelinedSum(const Elements& elements, std::size_t count, unsigned threads, std::size_t rank,
                           std::size_t ranks)
    : elements_(elements),
      threads_(threads),
      rank_(rank),
      chunks_(partition(count, ranks)),
      pieces_(ceil_divide(longest(), std::clamp(kSlotElements / ranks, kLeastPiece, kMostPiece))),
      piece_elements_(ceil_divide(ceil_divide(longest(), pieces_), kWordElements) * kWordElements),
      slots_(ranks == 1 ? 0 : std::min(kSlots, pieces_)),
      parts_(ranks) {
    if (ranks == 1) {
        stages_ = {{"copy", [this](Step* step) { return copy(step); }}};
    } else {
        stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
    }
}

Status PipelinedSum::create(Transport& transport, const Elements& elements, std::size_t count, unsigned threads,
                            int tag, std::unique_ptr<Algorithm>* algorithm) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    const auto ranks = static_cast<std::size_t>(transport.size());
    std::unique_ptr<PipelinedSum> made(new PipelinedSum(elements, count, threads, rank, ranks));
    for (std::size_t piece = 0; piece < made->slots_.size(); ++piece) {
        ONEBIT_RETURN_IF_ERROR(made->plan(transport, tag, &made->slots_[piece]));
    }
    *algorithm = std::move(made);
    return {};
}

std::size_t PipelinedSum::workspace_bytes() const {
    std::size_t bytes = 0;
    for (const Slot& slot : slots_) {
        bytes += slot.outgoing.bytes() + slot.incoming.bytes();
    }
    return bytes;
}

void PipelinedSum::set_operands(const Operands& operands) {
    operands_ = operands;
    handed_out_ = added_ = collected_ = 0;
}

/// Messages are as long as a whole piece, also where a chunk ends before that: by less than a word for each piece.
Status PipelinedSum::plan(Transport& transport, int tag, Slot* slot) {
    const std::size_t ranks = chunks_.size();
    const std::size_t bytes = piece_elements_ * elements_.bytes();
    slot->outgoing = AlignedBuffer<std::byte>((ranks - 1) * bytes);
    slot->incoming = AlignedBuffer<std::byte>((ranks - 1) * bytes);
    std::vector<Part> send_values, receive_values, send_sum, receive_sums;
    for (std::size_t r = 0; r < ranks; ++r) {
        if (r == rank_) continue;
        const int peer = static_cast<int>(r);
        send_values.push_back({peer, place(slot->outgoing, r), bytes});
        receive_values.push_back({peer, place(slot->incoming, r), bytes});
        send_sum.push_back({peer, slot->outgoing.data(), bytes});
        receive_sums.push_back({peer, place(slot->incoming, r), bytes});
    }
    ONEBIT_RETURN_IF_ERROR(
        transport.plan_exchange(std::move(send_values), std::move(receive_values), tag, &slot->values));
    return transport.plan_exchange(std::move(send_sum), std::move(receive_sums), tag + 1, &slot->sums);
}

Chunk PipelinedSum::piece_of(std::size_t rank, std::size_t piece) const {
    const Chunk& chunk = chunks_[rank];
    const std::size_t first = std::min(piece * piece_elements_, chunk.count);
    return {piece, chunk.begin + first, std::min(piece_elements_, chunk.count - first)};
}

std::byte* PipelinedSum::place(AlignedBuffer<std::byte>& buffer, std::size_t rank) const {
    return buffer.data() + (rank - (rank > rank_ ? 1 : 0)) * piece_elements_ * elements_.bytes();
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

/// What others wait for comes first, then what keeps the wire busy, then what only this rank needs.
Status PipelinedSum::advance(Step* step) {
    bool did = false;
    ONEBIT_RETURN_IF_ERROR(add_next(&did));
    ONEBIT_RETURN_IF_ERROR(hand_out_next(&did));
    ONEBIT_RETURN_IF_ERROR(collect_next(&did));
    *step = collected_ == pieces_ ? Step::kDone : did ? Step::kAgain : Step::kWait;
    return {};
}

Status PipelinedSum::hand_out_next(bool* did) {
    if (handed_out_ == pieces_ || handed_out_ == collected_ + slots_.size()) return {};
    Slot& slot = slot_of(handed_out_);
    for (std::size_t r = 0; r < chunks_.size(); ++r) {
        if (r == rank_) continue;
        const Chunk piece = piece_of(r, handed_out_);
        copy_elements(elements_.at(operands_.input, piece.begin), piece.count, place(slot.outgoing, r));
    }
    ++handed_out_;
    *did = true;
    return slot.values->start();
}

Status PipelinedSum::add_next(bool* did) {
    if (added_ == handed_out_) return {};
    Slot& slot = slot_of(added_);
    bool here = false;
    ONEBIT_RETURN_IF_ERROR(slot.values->test(&here));
    if (!here) return {};
    const Chunk own = piece_of(rank_, added_);
    for (std::size_t r = 0; r < chunks_.size(); ++r) {
        parts_[r] = r == rank_ ? elements_.at(operands_.input, own.begin) : place(slot.incoming, r);
    }
    add_up(own, slot.outgoing.data(), elements_.at(operands_.output, own.begin));
    ++added_;
    *did = true;
    return slot.sums->start();
}

/// In both places.
void PipelinedSum::add_up(const Chunk& own, void* sum, void* output) {
    const float share = operands_.sum_only ? 1.0F : 1.0F / static_cast<float>(chunks_.size());
    parallel_for(0, own.blocks(), threads_, [&](std::size_t index) {
        const Block block = {own, index};
        const std::size_t first = index * kBlockElements;
        elements_.mean(parts_.data(), parts_.size(), first, share, block.count(), Stores::kCached,
                       elements_.at(sum, first), Stores::kCached, elements_.at(output, first));
    });
}

Status PipelinedSum::collect_next(bool* did) {
    if (collected_ == added_) return {};
    Slot& slot = slot_of(collected_);
    bool here = false;
    ONEBIT_RETURN_IF_ERROR(slot.sums->test(&here));
    if (!here) return {};
    for (std::size_t r = 0; r < chunks_.size(); ++r) {
        if (r == rank_) continue;
        const Chunk piece = piece_of(r, collected_);
        copy_elements(place(slot.incoming, r), piece.count, elements_.at(operands_.output, piece.begin));
    }
    ++collected_;
    *did = true;
    return {};
}

} // namespace onebit
