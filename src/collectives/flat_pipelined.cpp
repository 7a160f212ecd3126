// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/flat_pipelined.hpp"

#include <algorithm>
#include <utility>

namespace onebit {

namespace {

/// A piece along a ring has a tag of its own, of which MPI has 32767 at least.
constexpr std::size_t kMostRings = 16384;
/// Behind those that both ways have.
constexpr int kRingTag = 4;

/// Each piece costs a GPU launches, copies and events: 40 microseconds on an H200 (docs/GPU_STATUS.md).
constexpr std::size_t kMostOnDevice = 16;

/// Blocks of a piece, or more of them, so that a chunk has no more pieces than this.
std::size_t blocks_of_piece(std::size_t piece_blocks, std::size_t most_blocks, std::size_t most_pieces) {
    return std::max(piece_blocks, ceil_divide(most_blocks, most_pieces));
}

} // namespace

PipelinedFlat::PipelinedFlat(FlatAllreduce& flat, Way way, std::size_t piece_blocks)
    : flat_(flat),
      way_(way),
      // A GPU is given the pieces of all chunks; the host looks after the network after each.
      chunks_at_once_(flat.codec().blocks_at_once() == Codec::kUnlimited ? flat.chunks().size() : 1),
      trailing_(flat.codec().trailer_of(flat.chunks().front()).count >
                0), // if any chunk holds something, the first does
      exchanges_(flat.rounds()) {
    slices_.reserve(chunks_at_once_);
    std::size_t most_blocks = 0;
    for (const Chunk& chunk : flat.chunks()) most_blocks = std::max(most_blocks, chunk.blocks());
    piece_blocks_ = piece_blocks;
    if (way == Way::kRing) piece_blocks_ = blocks_of_piece(piece_blocks_, most_blocks, kMostRings);
    if (flat.codec().blocks_at_once() == Codec::kUnlimited) {
        piece_blocks_ = blocks_of_piece(piece_blocks_, most_blocks, kMostOnDevice);
    }
    pieces_ = ceil_divide(most_blocks, piece_blocks_);
    stages_ = {{"exchange pieces", [this](Step* step) { return advance(step); }}};
}

int PipelinedFlat::ring_tags(std::size_t count, std::size_t ranks, std::size_t piece_blocks) {
    const std::size_t most_blocks = partition(count, ranks).front().blocks();
    return kRingTag +
           static_cast<int>(ceil_divide(most_blocks, blocks_of_piece(piece_blocks, most_blocks, kMostRings)));
}

Status PipelinedFlat::create(Transport& transport, FlatAllreduce& flat, Way way, std::size_t piece_blocks, int tag,
                             std::unique_ptr<PipelinedFlat>* algorithm) {
    std::unique_ptr<PipelinedFlat> made(new PipelinedFlat(flat, way, piece_blocks));
    for (std::size_t round = 0; round < flat.rounds(); ++round) {
        ONEBIT_RETURN_IF_ERROR(made->plan_exchanges(transport, tag, round));
    }
    *algorithm = std::move(made);
    return {};
}

/// Pieces of one chunk have one tag: they come in the order in which they were sent. Along a ring they have one each,
/// for one may overtake the other on some hop.
Status PipelinedFlat::plan_exchanges(Transport& transport, int tag, std::size_t round) {
    const int chunk_tag = tag, result_tag = tag + 1, chunk_trailer_tag = tag + 2, result_trailer_tag = tag + 3;
    const int ring_tag = tag + kRingTag;
    const Codec& codec = flat_.codec();
    Exchanges& planned = exchanges_[round];
    planned.chunks.resize(pieces_);
    planned.results.resize(pieces_);
    for (std::size_t k = 0; k < pieces_; ++k) {
        const auto words_of = [&](const Chunk& chunk) { return codec.words_of(piece_of(chunk, k)); };
        ONEBIT_RETURN_IF_ERROR(flat_.plan_chunks(transport, round, words_of, chunk_tag, &planned.chunks[k]));
        if (way_ == Way::kRing) {
            ONEBIT_RETURN_IF_ERROR(flat_.plan_ring_of_results(transport, round, words_of,
                                                              ring_tag + static_cast<int>(k), &planned.results[k]));
        } else {
            ONEBIT_RETURN_IF_ERROR(flat_.plan_results(transport, round, words_of, result_tag, &planned.results[k]));
        }
    }
    const auto trailer_of = [&](const Chunk& chunk) { return codec.trailer_of(chunk); };
    ONEBIT_RETURN_IF_ERROR(flat_.plan_chunks(transport, round, trailer_of, chunk_trailer_tag, &planned.chunk_trailers));
    return flat_.plan_results(transport, round, trailer_of, result_trailer_tag, &planned.result_trailers);
}

void PipelinedFlat::set_operands(const Operands& operands) {
    flat_.set_operands(operands);
    ready_ = operands.ready;
    encoded_ = encoded_chunk_ = averaged_ = decoded_ = decoded_chunk_ = 0;
    verdict_ = {};
}

// ---------------------------------------------------------------------------------------------- the one stage ----

Status PipelinedFlat::advance(Step* step) {
    if (way_ == Way::kRing) ONEBIT_RETURN_IF_ERROR(pass_results_on());
    for (const auto work : {&PipelinedFlat::average_next, &PipelinedFlat::encode_next, &PipelinedFlat::decode_next}) {
        bool did = false;
        ONEBIT_RETURN_IF_ERROR((this->*work)(&did));
        if (!did) continue;
        *step = Step::kAgain;
        return {};
    }
    if (decoded_ < pieces_) {
        *step = Step::kWait;
        return {};
    }
    if (!flat_.find_overflow(&verdict_)) {
        *step = Step::kInStream;
        return {};
    }
    flat_.finish(verdict_);
    *step = Step::kDone;
    return verdict_;
}

/// All pieces that are on their way: decoding waits for the first of them only, and for consent.
Status PipelinedFlat::pass_results_on() {
    bool arrived = false;
    for (std::size_t k = decoded_; k < averaged_; ++k) {
        ONEBIT_RETURN_IF_ERROR(exchanges().results[k]->test(&arrived));
    }
    return {};
}

/// A piece of the chunks from one on that are looked after in one step.
std::span<const Slice> PipelinedFlat::next_slices(std::size_t piece, std::size_t first_chunk) {
    slices_.clear();
    const std::size_t end = std::min(first_chunk + chunks_at_once_, flat_.chunks().size());
    for (std::size_t j = first_chunk; j < end; ++j) slices_.push_back(piece_of(flat_.chunks()[j], piece));
    return slices_;
}

/// Encodes the next piece of one chunk, or of all; sends when all chunks' are there.
Status PipelinedFlat::encode_next(bool* did) {
    if (encoded_ == pieces_) return {};
    *did = ready_ == nullptr || (*ready_)();
    if (!*did) return {};
    const std::span<const Slice> slices = next_slices(encoded_, encoded_chunk_);
    if (flat_.encodes()) flat_.encode(slices);
    encoded_chunk_ += slices.size();
    if (encoded_chunk_ < flat_.chunks().size()) return {};
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

/// Decodes the next piece of one chunk, or of all, if all chunks' are there, and all ranks consent.
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
    const std::span<const Slice> slices = next_slices(decoded_, decoded_chunk_);
    if (verdict_.ok()) verdict_ = flat_.check_result(slices);
    if (verdict_.ok() && flat_.decodes()) flat_.decode(slices);
    decoded_chunk_ += slices.size();
    if (decoded_chunk_ == flat_.chunks().size()) {
        decoded_chunk_ = 0;
        ++decoded_;
    }
    return {};
}

} // namespace onebit
