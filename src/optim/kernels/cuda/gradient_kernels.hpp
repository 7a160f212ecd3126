// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/sign/cuda/block_kernels.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "numeric/halves.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/kernels/cuda/pieces.hpp"

/// What a thread does in the passes over the pieces' own gradients, as these lie: look, encode_gradients and the
/// sketches. All loads of a piece are under way before the first is used.
namespace onebit::cuda {

/// Whether a piece has the thread's element in a group. The piece's first element is the block's element `begin`.
ONEBIT_DEVICE inline bool has(const Piece& piece, const Share& share, unsigned begin, unsigned group) {
    return share.at(group) - begin < piece.count; // unsigned: before `begin` it is very large
}
template <typename Word>
ONEBIT_DEVICE void load_words(const Piece& piece, const Share& share, unsigned begin, std::uint32_t (&words)[kGroups]) {
    const auto* const gradients = static_cast<const Word*>(piece.gradients);
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(share.at(0)) - begin; // signed: one address for all
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (has(piece, share, begin, g)) words[g] = gradients[first + static_cast<std::ptrdiff_t>(g * kLanes)];
    }
}
/// All gradients that the piece has for this thread, as floats' bits; leaves other words alone. Tests the gradients'
/// type once.
ONEBIT_DEVICE inline void load_gradients(const Piece& piece, const Share& share, unsigned begin,
                                         std::uint32_t (&words)[kGroups]) {
    if (piece.gradient_type == ONEBIT_FLOAT32) {
        load_words<std::uint32_t>(piece, share, begin, words);
        return;
    }
    load_words<std::uint16_t>(piece, share, begin, words);
    const bool is_float16 = piece.gradient_type == ONEBIT_FLOAT16;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        const auto half = static_cast<std::uint16_t>(words[g]);
        const float value = is_float16 ? widened_float16(half) : widened_bfloat16(half);
        words[g] = has(piece, share, begin, g) ? std::bit_cast<std::uint32_t>(value) : words[g];
    }
}

// ---- Looking and encoding ----

/// The least of the thread's elements in a piece whose gradient isn't within the limit; kBlockElements if all are.
/// kAll: the piece has all of the thread's elements. Tests all elements together before it looks for the first.
template <bool kAll>
ONEBIT_DEVICE unsigned first_beyond(const Piece& piece, const Share& share, unsigned begin,
                                    const std::uint32_t (&words)[kGroups], float limit) {
    std::uint32_t most = 0;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        if (kAll || has(piece, share, begin, g)) most = std::max(most, words[g] & 0x7fffffffU);
    }
    unsigned first = kBlockElements;
    if (is_within(most, limit)) return first;
#pragma unroll
    for (unsigned g = kGroups; g-- > 0;) {
        if ((kAll || has(piece, share, begin, g)) && !is_within(words[g], limit)) first = share.at(g);
    }
    return first;
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const LookArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Share share = share_of(thread, piece);
    std::uint32_t words[kGroups] = {};
    load_gradients(piece, share, 0, words);
    unsigned first = kBlockElements; // one test for each: first_beyond keeps all words for a second test
#pragma unroll
    for (unsigned g = kGroups; g-- > 0;) {
        if (!is_within(words[g], arguments.limit)) first = share.at(g);
    }
    if (arguments.out != nullptr) {
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) {
            if (share.has(g)) arguments.out[piece.offset + share.at(g)] = std::bit_cast<float>(words[g]);
        }
    }
    if (first < kBlockElements) thread.lower(arguments.first, piece.offset + first);
}

/// A block's elements in the last message.
struct LastSigns {
    std::uint32_t word; ///< this lane's
    float scale;
    bool blends; ///< there is one
};

/// Turns a piece's gradients into the values to be sent. Words of other pieces stay. kAll: as above.
template <bool kAll, typename Thread>
ONEBIT_DEVICE void form_piece(const Thread& thread, const Piece& piece, const Share& share, unsigned begin,
                              const EncodeGradientsArguments& arguments, const float* weights, const LastSigns& last,
                              std::uint32_t (&words)[kGroups]) {
    const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
    const float factor = arguments.factors[piece.tensor];
    const auto change = [&](const auto& to) {
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) {
            const float value = to(g, std::bit_cast<float>(words[g])); // all lanes together
            if (kAll || has(piece, share, begin, g)) words[g] = std::bit_cast<std::uint32_t>(value);
        }
    };
    change([&](unsigned, float value) { return rounded::multiply(value, factor); });
    if (weights != nullptr) {
        change([&](unsigned g, float value) {
            const float weight = kAll || has(piece, share, begin, g) ? weights[share.at(g)] : 0;
            return weighted_gradient(value, weight, betas);
        });
    }
    if (last.blends) {
        change([&](unsigned g, float value) {
            return first_moment(value, signed_at(thread, last.word, g, last.scale), betas);
        });
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const EncodeGradientsArguments& arguments, Scratch& scratch) {
    const GradientSlice& own = arguments.slices[thread.row()];
    if (thread.block() >= blocks_of(own)) return;
    const auto form = [&](const Block& block, const Share& share, float(&values)[kGroups]) {
        const onebit_group_t group = own.to.group;
        const float* const weights =
            arguments.precondition != nullptr ? arguments.precondition + block.begin() : nullptr;
        LastSigns last = {0, 0, own.last != nullptr};
        if (last.blends) {
            last.word = load_word(thread, share, own.last + sign_word(group, block.chunk, block.index));
            last.scale = std::bit_cast<float>(own.last[scale_word(group, block.chunk, block.index)]);
        }
        std::uint32_t words[kGroups] = {};
        unsigned first = kBlockElements;
        // Usually there is one piece; each has a part of the block's elements.
        const std::size_t end = own.first_piece[block.index + 1];
        for (std::size_t p = own.first_piece[block.index]; p < end; ++p) {
            const Piece piece = arguments.pieces.pieces[p];
            const auto begin = static_cast<unsigned>(piece.offset - block.begin());
            load_gradients(piece, share, begin, words);
            if (piece.count == kBlockElements) {
                first = first_beyond<true>(piece, share, begin, words, arguments.limit);
                form_piece<true>(thread, piece, share, begin, arguments, weights, last, words);
            } else {
                first = std::min(first, first_beyond<false>(piece, share, begin, words, arguments.limit));
                form_piece<false>(thread, piece, share, begin, arguments, weights, last, words);
            }
        }
        if (arguments.first != nullptr && first < kBlockElements) thread.lower(arguments.first, block.begin() + first);
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) values[g] = std::bit_cast<float>(words[g]);
    };
    encode_block(thread, own.to, form, scratch);
}

// ---- Sketches ----

/// Elements that a piece has at most for a bucket; and pieces whose loads are under way together.
inline constexpr unsigned kSketchTurns = kBlockElements / kSketchBuckets;
inline constexpr unsigned kPieceBatch = 4;

/// Where a piece's first element for a bucket is; others follow kSketchBuckets further on.
ONEBIT_DEVICE inline unsigned first_in_bucket(const Piece& piece, unsigned bucket) {
    const auto rotation = static_cast<unsigned>(sketch_bucket(piece.seed, 0));
    return (bucket - rotation) % kSketchBuckets;
}

template <typename Word>
ONEBIT_DEVICE void load_for_bucket(const Piece& piece, unsigned bucket, std::uint32_t (&words)[kSketchTurns]) {
    const auto* const gradients = static_cast<const Word*>(piece.gradients);
    const unsigned first = first_in_bucket(piece, bucket);
#pragma unroll
    for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
        const unsigned i = first + turn * static_cast<unsigned>(kSketchBuckets);
        words[turn] = i < piece.count ? gradients[i] : 0;
    }
}

/// A word of signs for each turn of each piece of a batch, which lane b * kSketchTurns + turn has. A warp's elements
/// are 32 in a row, of one word. Past the end there are none.
template <typename Thread>
ONEBIT_DEVICE std::uint32_t load_signs(const Thread& thread, const Piece* pieces, std::size_t first, std::size_t end,
                                       unsigned bucket) {
    const std::size_t p = first + thread.lane() / kSketchTurns % kPieceBatch;
    const Piece& piece = pieces[p < end ? p : first];
    const unsigned i = first_in_bucket(piece, bucket) + thread.lane() % kSketchTurns * kSketchBuckets;
    return sketch_signs(piece.seed, i / kWordElements);
}

/// Adds up the pieces [first, end) in one sketch; form(piece, i, word): the value of element i. This is one of a
/// sketch's kSketchParts thread blocks. A thread has one bucket, to which it adds piece by piece. A warp's buckets are
/// side by side, and so are their elements.
template <typename Thread, typename Form>
ONEBIT_DEVICE void sketch_pieces(const Thread& thread, const Piece* pieces, std::size_t first, std::size_t end,
                                 const Form& form, float* sketch) {
    const auto part = static_cast<unsigned>(thread.block() % kSketchParts);
    const unsigned bucket = (part * kWarps + thread.warp()) * static_cast<unsigned>(kLanes) + thread.lane();
    float sum = 0;
    for (std::size_t p = first; p < end; p += kPieceBatch) {
        // Each step for the whole batch, so that its loads are under way together.
        Piece batch[kPieceBatch];
        std::uint32_t words[kPieceBatch][kSketchTurns];
#pragma unroll
        for (unsigned b = 0; b < kPieceBatch; ++b) {
            batch[b] = pieces[p + b < end ? p + b : p];
            if (p + b >= end) batch[b].count = 0;
        }
#pragma unroll
        for (unsigned b = 0; b < kPieceBatch; ++b) {
            if (batch[b].gradient_type == ONEBIT_FLOAT32) {
                load_for_bucket<std::uint32_t>(batch[b], bucket, words[b]);
            } else {
                load_for_bucket<std::uint16_t>(batch[b], bucket, words[b]);
            }
        }
        const std::uint32_t signs = load_signs(thread, pieces, p, end, bucket);
#pragma unroll
        for (unsigned b = 0; b < kPieceBatch; ++b) {
#pragma unroll
            for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
                const unsigned i = first_in_bucket(batch[b], bucket) + turn * static_cast<unsigned>(kSketchBuckets);
                const bool here = i < batch[b].count;
                const float value = here ? form(batch[b], i, words[b][turn]) : 0;
                const float addend = signed_at(thread, signs, b * kSketchTurns + turn, value); // all lanes together
                if (here) sum = rounded::add(sum, addend);
            }
        }
    }
    sketch[bucket] = sum;
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SketchArguments& arguments, Scratch& /*scratch*/) {
    const std::size_t run = thread.block() / kSketchParts;
    const std::size_t first = run * kSketchPieces;
    const std::size_t left = arguments.pieces.count - first;
    const std::size_t end = first + (left < kSketchPieces ? left : kSketchPieces);
    const auto form = [](const Piece& piece, std::size_t, std::uint32_t word) { return gradient_of(piece, word); };
    sketch_pieces(thread, arguments.pieces.pieces, first, end, form, arguments.sketches + run * kSketchBuckets);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SketchWeightedArguments& arguments, Scratch& /*scratch*/) {
    const std::size_t run = thread.block() / kSketchParts;
    const Piece* const pieces = arguments.pieces.pieces;
    const std::size_t first = arguments.first_piece[run];
    const float factor = arguments.factors[pieces[first].tensor];
    const AdamBetas betas = settings_of(pieces[first], arguments.pieces).betas;
    const auto form = [&](const Piece& piece, std::size_t i, std::uint32_t word) {
        const float g = rounded::multiply(gradient_of(piece, word), factor);
        return weighted_gradient(g, arguments.precondition[piece.offset + i], betas);
    };
    sketch_pieces(thread, pieces, first, arguments.first_piece[run + 1], form,
                  arguments.sketches + run * kSketchBuckets);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const AddSketchesArguments& arguments, Scratch& /*scratch*/) {
    constexpr unsigned kBatch = 32; // sketches whose loads are under way together
    const std::size_t bucket = (thread.block() * kWarps + thread.warp()) * kLanes + thread.lane();
    const float* const sketches = arguments.sketches + bucket;
    float sum = 0;
    std::size_t p = 0;
    for (; p + kBatch <= arguments.count; p += kBatch) {
        float parts[kBatch];
#pragma unroll
        for (unsigned k = 0; k < kBatch; ++k) parts[k] = sketches[(p + k) * kSketchBuckets];
#pragma unroll
        for (unsigned k = 0; k < kBatch; ++k) sum = rounded::add(sum, parts[k]);
    }
    for (; p < arguments.count; ++p) sum = rounded::add(sum, sketches[p * kSketchBuckets]);
    arguments.total[bucket] = sum;
}

} // namespace onebit::cuda
