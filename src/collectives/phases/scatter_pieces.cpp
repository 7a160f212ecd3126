// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/phases/scatter_pieces.hpp"

namespace onebit {

Status ScatterPieces::plan(Transport& transport, std::size_t round, int tag, int trailer_tag) {
    const Codec& codec = phase_.layout().codec();
    PieceExchanges& planned = exchanges_[round];
    planned.pieces.resize(pieces_.count);
    for (std::size_t k = 0; k < pieces_.count; ++k) {
        const auto words_of = [&](const Chunk& chunk) { return codec.words_of(pieces_.of(chunk, k)); };
        ONEBIT_RETURN_IF_ERROR(phase_.plan(transport, round, words_of, tag, &planned.pieces[k]));
    }
    const auto trailer_of = [&](const Chunk& chunk) { return codec.trailer_of(chunk); };
    return phase_.plan(transport, round, trailer_of, trailer_tag, &planned.trailers);
}

void ScatterPieces::begin(const std::function<bool()>* ready) {
    ready_ = ready;
    cursor_.restart();
    taken_ = 0;
}

Status ScatterPieces::encode_next(bool* did) {
    if (all_encoded()) return {};
    *did = ready_ == nullptr || (*ready_)();
    if (!*did) return {};
    const std::span<const Slice> slices = cursor_.next();
    if (phase_.encodes()) phase_.encode(slices);
    const std::size_t piece = cursor_.piece();
    if (!cursor_.pass()) return {};
    ONEBIT_RETURN_IF_ERROR(exchanges().pieces[piece]->start());
    if (!all_encoded()) return {};
    phase_.seal();
    ONEBIT_RETURN_IF_ERROR(exchanges().trailers->start());
    return phase_.cast_vote();
}

Status ScatterPieces::test_next(bool* there) const {
    *there = false;
    if (taken_ == encoded()) return {};
    return exchanges().test(taken_, pieces_.trailing, all_encoded(), there);
}

} // namespace onebit
