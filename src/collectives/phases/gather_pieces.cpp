// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/phases/gather_pieces.hpp"

namespace onebit {

Status GatherPieces::plan(Transport& transport, std::size_t round, int tag, int trailer_tag, int ring_tag) {
    const Codec& codec = phase_.layout().codec();
    PieceExchanges& planned = exchanges_[round];
    planned.pieces.resize(pieces_.count);
    for (std::size_t k = 0; k < pieces_.count; ++k) {
        const auto words_of = [&](const Chunk& chunk) { return codec.words_of(pieces_.of(chunk, k)); };
        std::unique_ptr<Exchange>* const piece = &planned.pieces[k];
        const int own_tag = ring_tag + static_cast<int>(k);
        ONEBIT_RETURN_IF_ERROR(way_ == Way::kRing ? phase_.plan_ring(transport, round, words_of, own_tag, piece)
                                                  : phase_.plan(transport, round, words_of, tag, piece));
    }
    const auto trailer_of = [&](const Chunk& chunk) { return codec.trailer_of(chunk); };
    return phase_.plan(transport, round, trailer_of, trailer_tag, &planned.trailers);
}

void GatherPieces::begin() {
    sent_ = 0;
    cursor_.restart();
    verdict_ = {};
}

Status GatherPieces::send_next() {
    ONEBIT_RETURN_IF_ERROR(exchanges().pieces[sent_++]->start());
    if (!all_sent()) return {};
    phase_.seal();
    return exchanges().trailers->start();
}

Status GatherPieces::pass_on() {
    bool arrived = false;
    for (std::size_t k = way_ == Way::kRing ? decoded() : sent_; k < sent_; ++k) {
        ONEBIT_RETURN_IF_ERROR(exchanges().pieces[k]->test(&arrived));
    }
    return {};
}

Status GatherPieces::decode_next(bool* did) {
    bool all_voted = false;
    ONEBIT_RETURN_IF_ERROR(phase_.test_vote(&all_voted)); // moves it on, too
    if (!all_voted || decoded() == sent_) return {};
    ONEBIT_RETURN_IF_ERROR(exchanges().test(decoded(), pieces_.trailing, all_sent(), did));
    if (!*did) return {};
    const std::span<const Slice> slices = cursor_.next();
    if (verdict_.ok()) verdict_ = phase_.check(slices);
    if (verdict_.ok() && phase_.decodes()) verdict_ = phase_.decode(slices);
    (void)cursor_.pass();
    return {};
}

bool GatherPieces::find_verdict(Status* verdict) {
    if (!phase_.find_overflow(&verdict_)) return false;
    *verdict = verdict_;
    return true;
}

} // namespace onebit
