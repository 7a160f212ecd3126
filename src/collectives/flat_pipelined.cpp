// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/flat_pipelined.hpp"

#include <algorithm>
#include <utility>

namespace onebit {

PipelinedFlat::PipelinedFlat(FlatAllreduce& flat, std::size_t piece_blocks)
    : flat_(flat),
      piece_blocks_(piece_blocks),
      trailing_(flat.codec().trailer_of(flat.chunks().front()).count >
                0), // if any chunk holds something, the first does
      exchanges_(flat.rounds()) {
    std::size_t most_blocks = 0;
    for (const Chunk& chunk : flat.chunks()) most_blocks = std::max(most_blocks, chunk.blocks());
    pieces_ = ceil_divide(most_blocks, piece_blocks);
    stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
}

Status PipelinedFlat::create(Transport& transport, FlatAllreduce& flat, std::size_t piece_blocks, int tag,
                             std::unique_ptr<PipelinedFlat>* algorithm) {
    std::unique_ptr<PipelinedFlat> made(new PipelinedFlat(flat, piece_blocks));
    for (std::size_t round = 0; round < flat.rounds(); ++round) {
        ONEBIT_RETURN_IF_ERROR(made->plan_exchanges(transport, tag, round));
    }
    *algorithm = std::move(made);
    return {};
}

/// Pieces of one chunk have one tag: they come in the order in which they were sent.
Status PipelinedFlat::plan_exchanges(Transport& transport, int tag, std::size_t round) {
    const Codec& codec = flat_.codec();
    Exchanges& planned = exchanges_[round];
    planned.chunks.resize(pieces_);
    planned.results.resize(pieces_);
    for (std::size_t k = 0; k < pieces_; ++k) {
        const auto words_of = [&](const Chunk& chunk) { return codec.words_of(piece_of(chunk, k)); };
        ONEBIT_RETURN_IF_ERROR(
            flat_.plan_exchanges(transport, round, words_of, tag, &planned.chunks[k], &planned.results[k]));
    }
    const auto trailer_of = [&](const Chunk& chunk) { return codec.trailer_of(chunk); };
    return flat_.plan_exchanges(transport, round, trailer_of, tag + 2, &planned.chunk_trailers,
                                &planned.result_trailers);
}

void PipelinedFlat::set_operands(const Operands& operands) {
    flat_.set_operands(operands);
    ready_ = operands.ready;
    encoded_ = encoded_chunk_ = averaged_ = decoded_ = decoded_chunk_ = 0;
    verdict_ = {};
}

// ---------------------------------------------------------------------------------------------- the one stage ----

Status PipelinedFlat::advance(Step* step) {
    for (const auto work : {&PipelinedFlat::average_next, &PipelinedFlat::encode_next, &PipelinedFlat::decode_next}) {
        bool did = false;
        ONEBIT_RETURN_IF_ERROR((this->*work)(&did));
        if (!did) continue;
        *step = Step::kAgain;
        return {};
    }
    if (decoded_ < pieces_ || !flat_.find_overflow(&verdict_)) {
        *step = Step::kWait;
        return {};
    }
    flat_.finish(verdict_);
    *step = Step::kDone;
    return verdict_;
}

/// Encodes the next piece of one chunk; sends when all chunks' are there.
Status PipelinedFlat::encode_next(bool* did) {
    if (encoded_ == pieces_) return {};
    const Slice slice = piece_of(flat_.chunks()[encoded_chunk_], encoded_);
    *did = ready_ == nullptr || (*ready_)();
    if (!*did) return {};
    if (flat_.encodes()) flat_.encode(slice);
    if (++encoded_chunk_ < flat_.chunks().size()) return {};
    encoded_chunk_ = 0;
    ONEBIT_RETURN_IF_ERROR(exchanges().chunks[encoded_++]->start());
    if (encoded_ < pieces_) return {};
    flat_.seal_chunks();
    ONEBIT_RETURN_IF_ERROR(exchanges().chunk_trailers->start());
    return flat_.ask_consent();
}

/// Averages the next piece of the own chunk if all ranks' are there, and sends it to everybody.
Status PipelinedFlat::average_next(bool* did) {
    if (averaged_ == encoded_) return {};
    ONEBIT_RETURN_IF_ERROR(exchanges().chunks[averaged_]->test(did));
    if (!*did) return {};
    if (trailing_) {
        *did = encoded_ == pieces_;
        if (*did) ONEBIT_RETURN_IF_ERROR(exchanges().chunk_trailers->test(did));
        if (!*did) return {};
    }
    flat_.average_and_encode(piece_of(flat_.own_chunk(), averaged_));
    ONEBIT_RETURN_IF_ERROR(exchanges().results[averaged_++]->start());
    if (averaged_ < pieces_) return {};
    flat_.seal_result();
    return exchanges().result_trailers->start();
}

/// Decodes the next piece of one chunk if all chunks' are there, and all ranks consent.
Status PipelinedFlat::decode_next(bool* did) {
    bool consented = false;
    ONEBIT_RETURN_IF_ERROR(flat_.test_consent(&consented)); // moves it on, too
    if (!consented || decoded_ == averaged_) return {};
    ONEBIT_RETURN_IF_ERROR(exchanges().results[decoded_]->test(did));
    if (!*did) return {};
    if (trailing_) {
        *did = averaged_ == pieces_;
        if (*did) ONEBIT_RETURN_IF_ERROR(exchanges().result_trailers->test(did));
        if (!*did) return {};
    }
    const Slice piece = piece_of(flat_.chunks()[decoded_chunk_], decoded_);
    if (verdict_.ok()) verdict_ = flat_.check_result(piece);
    if (verdict_.ok() && flat_.decodes()) flat_.decode(piece);
    if (++decoded_chunk_ == flat_.chunks().size()) {
        decoded_chunk_ = 0;
        ++decoded_;
    }
    return {};
}

} // namespace onebit
