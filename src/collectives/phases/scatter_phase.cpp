// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/phases/scatter_phase.hpp"

#include <utility>

namespace onebit {

ScatterPhase::ScatterPhase(const MessageLayout& layout, std::vector<std::vector<std::uint32_t*>> rows,
                           bool tentative_calls)
    : layout_(layout),
      rows_(std::move(rows)),
      error_(layout.codec(), layout.chunks(), tentative_calls, 2 * layout.rank()) {
    const std::size_t ranks = layout.chunks().size();
    const std::size_t own_words = layout.codec().row_words(layout.own_chunk());
    incoming_ = AlignedBuffer<std::uint32_t>(own_words * ranks, layout.codec().memory());
    for (std::size_t j = 0; j < ranks; ++j) received_.push_back(incoming_.data() + j * own_words);
    for (auto& row : rows_) row[layout.rank()] = incoming_.data() + layout.rank() * own_words;
    to_encode_.reserve(ranks);
}

void ScatterPhase::begin(const Operands& operands, std::size_t round, std::span<std::uint32_t* const> last) {
    operands_ = operands;
    round_ = round;
    last_ = last;
    error_.begin_call(operands.number);
}

void ScatterPhase::encode(std::span<const Slice> slices) {
    const Codec& codec = layout_.codec();
    Feedback& after = error_.after(operands_.tentative);
    to_encode_.clear();
    for (const Slice& slice : slices) {
        const std::size_t j = slice.chunk.index;
        to_encode_.push_back({slice, last_.empty() ? nullptr : last_[j], rows_[round_][j]});
    }
    codec.encode(*operands_.source, error_.now(), after, to_encode_);
    if (operands_.vote == nullptr) return;
    for (const auto& [slice, last, message] : to_encode_) {
        if (!codec.encoded_finite(after, slice, message)) (void)operands_.vote->doubt(slice);
    }
}

Status ScatterPhase::plan(Transport& transport, std::size_t round, const WordsOf& words_of, int tag,
                          std::unique_ptr<Exchange>* exchange) const {
    const Chunk& own = layout_.own_chunk();
    std::vector<Part> sends;
    std::vector<Part> receives;
    for (const Chunk& chunk : layout_.chunks()) {
        const std::size_t j = chunk.index;
        if (j == layout_.rank()) continue;
        sends.push_back(layout_.part(j, chunk, rows_[round][j], words_of(chunk)));
        receives.push_back(layout_.part(j, own, received_[j], words_of(own)));
    }
    return transport.plan_exchange(std::move(sends), std::move(receives), tag, exchange);
}

} // namespace onebit
