// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/sign/cuda/block_kernels.hpp"
#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "numeric/halves.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/cuda/kernels.hpp"

/// Functions that all passes use, written for any `Thread`, like the sign codec's kernels and in their order: a thread
/// block has one piece, a thread has the element of its own lane in 16 groups of 32.
namespace onebit::cuda {

/// The number of elements, a power of two, whose loads a thread has under way together, if each loads `bytes` bytes.
/// More loads cost more in registers than they gain in hidden latency (measured on an H200, with 160 instead of 80).
constexpr unsigned element_batch(std::size_t bytes) {
    unsigned batch = 1;
    while (batch < kGroups && 2 * batch * bytes <= 80) batch *= 2;
    return batch;
}

/// Thread blocks that a pass takes.
template <typename Arguments>
requires requires(const Arguments& arguments) {
    arguments.pieces.pieces;
}
std::size_t blocks_of(const Arguments& arguments) {
    return arguments.pieces.count;
}
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const GradientSlice& arguments) {
    return arguments.to.slice.blocks();
}
inline std::size_t blocks_of(const EncodeGradientsArguments& arguments) {
    return blocks_of(arguments.slices);
}
inline std::size_t rows_of(const EncodeGradientsArguments& arguments) {
    return arguments.slices.count();
}
/// One less than of other encoders: the preconditioner's loads take registers, too.
template <>
inline constexpr unsigned kResidentBlocks<EncodeGradientsArguments> = kResidentEncoders - 1;
/// Thread blocks that a sketch takes: a thread for each bucket.
inline constexpr std::size_t kSketchParts = kSketchBuckets / kThreads;
inline std::size_t blocks_of(const SketchArguments& arguments) {
    return ceil_divide(arguments.pieces.count, kSketchPieces) * kSketchParts;
}
inline std::size_t blocks_of(const SketchWeightedArguments& arguments) {
    return arguments.runs * kSketchParts;
}
inline std::size_t blocks_of(const AddSketchesArguments& /*arguments*/) {
    return kSketchParts;
}

/// A thread block's piece. By value: after a store everything behind a pointer would be loaded again.
template <typename Thread>
ONEBIT_DEVICE Piece piece_of(const Thread& thread, const Pieces& pieces) {
    return pieces.pieces[thread.block()];
}
ONEBIT_DEVICE inline GroupSettings settings_of(const Piece& piece, const Pieces& pieces) {
    return pieces.settings[piece.group];
}
ONEBIT_DEVICE inline float given(const float* by_tensor, const Piece& piece, float otherwise) {
    return by_tensor != nullptr ? by_tensor[piece.tensor] : otherwise;
}

template <typename Thread>
ONEBIT_DEVICE Share share_of(const Thread& thread, const Piece& piece) {
    return share_of(thread, Block{{0, 0, piece.count}, 0});
}

/// Calls store(i, load(i)) for the thread's elements of a piece, some loads ahead of their stores. `load` loads and
/// does nothing else.
template <typename Thread, typename Load, typename Store>
ONEBIT_DEVICE void for_each_element(const Thread& thread, const Piece& piece, const Load& load, const Store& store) {
    using Element = decltype(load(std::size_t{0}));
    constexpr unsigned kBatch = element_batch(sizeof(Element));
    const Share share = share_of(thread, piece);
#pragma unroll 1
    for (unsigned first = 0; first < kGroups; first += kBatch) {
        const std::size_t begin =
            share.at(first); // of 64 bits, so that an address and a constant are each of the batch's
        Element elements[kBatch] = {};
#pragma unroll
        for (unsigned k = 0; k < kBatch; ++k) {
            if (share.has(first + k)) elements[k] = load(begin + k * kLanes);
        }
#pragma unroll
        for (unsigned k = 0; k < kBatch; ++k) {
            if (share.has(first + k)) store(begin + k * kLanes, elements[k]);
        }
    }
}

/// Calls go(words) once: an array of the piece's own gradients as they lie in memory. Loads then don't depend on a
/// test of the gradients' type, for which later loads would wait.
template <typename Go>
ONEBIT_DEVICE void with_gradients(const Piece& piece, const Go& go) {
    if (piece.gradient_type == ONEBIT_FLOAT32) {
        go(static_cast<const std::uint32_t*>(piece.gradients));
    } else {
        go(static_cast<const std::uint16_t*>(piece.gradients));
    }
}
/// The float of such a word. (If a word were used right after its load, the next element's load would wait for it.)
ONEBIT_DEVICE inline float gradient_of(const Piece& piece, std::uint32_t bits) {
    if (piece.gradient_type == ONEBIT_FLOAT32) return std::bit_cast<float>(bits);
    const auto half = static_cast<std::uint16_t>(bits);
    return piece.gradient_type == ONEBIT_FLOAT16 ? widened_float16(half) : widened_bfloat16(half);
}

ONEBIT_DEVICE inline void write_copy(const Piece& piece, std::size_t i, float parameter) {
    if (piece.copy == nullptr) return;
    if (piece.copy_type == ONEBIT_FLOAT32) {
        static_cast<float*>(piece.copy)[i] = parameter;
        return;
    }
    static_cast<std::uint16_t*>(piece.copy)[i] =
        piece.copy_type == ONEBIT_FLOAT16 ? narrowed_float16(parameter) : narrowed_bfloat16(parameter);
}

ONEBIT_DEVICE inline void write_parameter(const Piece& piece, std::size_t i, float parameter) {
    piece.parameters[i] = parameter;
    write_copy(piece, i, parameter);
}

// A piece may begin at any bit of a word: every thread loads the word that it needs, which the L1 cache has.
ONEBIT_DEVICE inline std::uint32_t load_word_of(const std::uint32_t* words, std::size_t bit) {
    return words[bit / kWordElements];
}

/// Reads a piece's elements from messages, plus or minus one value, where all elements take part.
struct Signs {
    const std::uint32_t* words;
    std::size_t first; ///< which bit is the first element's

    using Words = std::uint32_t;
    ONEBIT_DEVICE Words load(std::size_t i) const { return load_word_of(words, first + i); }
    ONEBIT_DEVICE float value(Words word, std::size_t i, float magnitude) const {
        return signed_by(word << (kWordElements - 1 - (first + i) % kWordElements), magnitude);
    }
};
/// The same where some elements are masked; masked elements are 0.
struct MaskedSigns {
    Signs signs;
    const std::uint32_t* mask;
    std::size_t first; ///< likewise, in the mask

    struct Words {
        std::uint32_t signs, valid;
    };
    ONEBIT_DEVICE Words load(std::size_t i) const { return {signs.load(i), load_word_of(mask, first + i)}; }
    ONEBIT_DEVICE float value(const Words& words, std::size_t i, float magnitude) const {
        return (words.valid >> (first + i) % kWordElements & 1) != 0 ? signs.value(words.signs, i, magnitude) : 0.0F;
    }
};

/// Calls go(signs) once, so that a load doesn't test for a mask.
template <typename Go>
ONEBIT_DEVICE void with_signs(const Messages& messages, const Piece& piece, const Go& go) {
    const Signs signs = {messages.words, piece.first_sign};
    if (messages.mask == nullptr) {
        go(signs);
    } else {
        go(MaskedSigns{signs, messages.mask, piece.offset});
    }
}
ONEBIT_DEVICE inline float scale_of(const Messages& messages, const Piece& piece) {
    return std::bit_cast<float>(messages.words[piece.scale_word]);
}

} // namespace onebit::cuda
