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
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/cuda/kernels.hpp"
#include "optim/kernels/cuda/pieces.hpp"

/// What a thread does in the passes over the pieces' own gradients, as these lie: look, encode_gradients and the
/// sketches. All loads of a piece are under way before the first is used.
namespace onebit::cuda {

/// Whether a piece has the thread's element in a group, its own first being the thread block's element `begin`.
ONEBIT_DEVICE inline bool has(const Piece& piece, const Share& share, unsigned begin, unsigned group) {
    return share.at(group) - begin < piece.count; // what lies before `begin` is far beyond it
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
/// All gradients that the piece has for this thread, as floats' bits; leaves the others' words alone. Asks once of
/// which type they are.
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

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const LookArguments& arguments, Scratch& /*scratch*/) {
    const Piece piece = piece_of(thread, arguments.pieces);
    const Share share = share_of(thread, piece);
    std::uint32_t words[kGroups] = {};
    load_gradients(piece, share, 0, words);
    unsigned first = kBlockElements;
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

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const EncodeGradientsArguments& arguments, Scratch& scratch) {
    const GradientSlice& own = arguments.slices[thread.row()];
    if (thread.block() >= blocks_of(own)) return;
    const auto form = [&](const Block& block, const Share& share, float(&values)[kGroups]) {
        const onebit_group_t group = own.to.group;
        const bool blends = own.last != nullptr;
        const float* const weights =
            arguments.precondition != nullptr ? arguments.precondition + block.begin() : nullptr;
        std::uint32_t signs = 0;
        float last_scale = 0;
        if (blends) {
            signs = load_word(thread, share, own.last + sign_word(group, block.chunk, block.index));
            last_scale = std::bit_cast<float>(own.last[scale_word(group, block.chunk, block.index)]);
        }
        std::uint32_t words[kGroups] = {};
        unsigned first = kBlockElements;
        // Usually there is one piece; each has a part of the block's elements.
        const std::size_t end = own.first_piece[block.index + 1];
        for (std::size_t p = own.first_piece[block.index]; p < end; ++p) {
            const Piece piece = arguments.pieces.pieces[p];
            const auto begin = static_cast<unsigned>(piece.offset - block.begin());
            const AdamBetas betas = settings_of(piece, arguments.pieces).betas;
            const float factor = arguments.factors[piece.tensor];
            load_gradients(piece, share, begin, words);
#pragma unroll
            for (unsigned g = 0; g < kGroups; ++g) {
                const bool here = has(piece, share, begin, g);
                if (here && !is_within(words[g], arguments.limit)) first = std::min(first, share.at(g));
                float value = rounded::multiply(std::bit_cast<float>(words[g]), factor);
                if (weights != nullptr && here) value = weighted_gradient(value, weights[share.at(g)], betas);
                const float before = bit_at(thread, signs, g) ? last_scale : -last_scale;
                if (blends) value = first_moment(value, before, betas);
                words[g] = here ? std::bit_cast<std::uint32_t>(value) : words[g];
            }
        }
        if (arguments.first != nullptr && first < kBlockElements) thread.lower(arguments.first, block.begin() + first);
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) values[g] = std::bit_cast<float>(words[g]);
    };
    encode_block(thread, own.to, form, scratch);
}

// ---- Sketches ----

/// Elements that a piece has at most for a bucket, and a thread's buckets.
inline constexpr unsigned kSketchTurns = kBlockElements / kSketchBuckets;
inline constexpr unsigned kOwnBuckets = kSketchBuckets / kThreads;

/// Where a piece's first element for one of the thread's buckets is; others follow kSketchBuckets further on.
ONEBIT_DEVICE inline unsigned first_in_bucket(const Piece& piece, unsigned self, unsigned k) {
    const auto rotation = static_cast<unsigned>(sketch_bucket(piece.seed, 0));
    return (self + k * kThreads - rotation) % kSketchBuckets;
}

template <typename Word>
ONEBIT_DEVICE void load_for_buckets(const Piece& piece, unsigned self,
                                    std::uint32_t (&words)[kOwnBuckets][kSketchTurns]) {
    const auto* const gradients = static_cast<const Word*>(piece.gradients);
#pragma unroll
    for (unsigned k = 0; k < kOwnBuckets; ++k) {
        const unsigned first = first_in_bucket(piece, self, k);
#pragma unroll
        for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
            const unsigned i = first + turn * static_cast<unsigned>(kSketchBuckets);
            words[k][turn] = i < piece.count ? gradients[i] : 0;
        }
    }
}

/// Adds up the pieces [first, end) in one sketch; form(piece, i, word): what counts of element i. A thread has four
/// buckets, to which it adds piece by piece; a warp's are side by side, as are their elements. All of a piece are under
/// way together, and the next one's description meanwhile.
template <typename Thread, typename Form>
ONEBIT_DEVICE void sketch_pieces(const Thread& thread, const Piece* pieces, std::size_t first, std::size_t end,
                                 const Form& form, float* sketch) {
    const unsigned self = thread.warp() * static_cast<unsigned>(kLanes) + thread.lane();
    float buckets[kOwnBuckets] = {};
    Piece piece = pieces[first];
    for (std::size_t p = first; p < end; ++p) {
        const Piece next = pieces[p + 1 < end ? p + 1 : p];
        std::uint32_t words[kOwnBuckets][kSketchTurns];
        if (piece.gradient_type == ONEBIT_FLOAT32) {
            load_for_buckets<std::uint32_t>(piece, self, words);
        } else {
            load_for_buckets<std::uint16_t>(piece, self, words);
        }
#pragma unroll
        for (unsigned k = 0; k < kOwnBuckets; ++k) {
#pragma unroll
            for (unsigned turn = 0; turn < kSketchTurns; ++turn) {
                const std::size_t i = first_in_bucket(piece, self, k) + turn * kSketchBuckets;
                if (i >= piece.count) continue;
                const float addend = sketch_addend(piece.seed, i, form(piece, i, words[k][turn]));
                buckets[k] = rounded::add(buckets[k], addend);
            }
        }
        piece = next;
    }
#pragma unroll
    for (unsigned k = 0; k < kOwnBuckets; ++k) sketch[self + k * kThreads] = buckets[k];
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SketchArguments& arguments, Scratch& /*scratch*/) {
    const std::size_t first = thread.block() * kSketchPieces;
    const std::size_t left = arguments.pieces.count - first;
    const std::size_t end = first + (left < kSketchPieces ? left : kSketchPieces);
    const auto form = [](const Piece& piece, std::size_t, std::uint32_t word) { return gradient_of(piece, word); };
    sketch_pieces(thread, arguments.pieces.pieces, first, end, form,
                  arguments.sketches + thread.block() * kSketchBuckets);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SketchWeightedArguments& arguments, Scratch& /*scratch*/) {
    const std::size_t run = thread.block();
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
    for (std::size_t b = thread.warp() * kLanes + thread.lane(); b < kSketchBuckets; b += kThreads) {
        float sum = 0;
        for (std::size_t p = 0; p < arguments.count; ++p) {
            sum = rounded::add(sum, arguments.sketches[p * kSketchBuckets + b]);
        }
        arguments.total[b] = sum;
    }
}

} // namespace onebit::cuda
