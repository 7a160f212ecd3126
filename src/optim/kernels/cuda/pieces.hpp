// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/sign/cuda/block_kernels.hpp"
#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/cuda/kernels.hpp"

/// What the passes have in common, written for any `Thread`, like the sign codec's kernels and in their order: a thread
/// block stands for a piece, a thread has the element of its own lane in 16 groups of 32.
namespace onebit::cuda {

/// Elements whose loads are under way together. Adam loads four floats for each: more would take more registers than
/// they hide of memory's latency.
inline constexpr unsigned kElementBatch = 4;

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
inline std::size_t blocks_of(const SketchArguments& arguments) {
    return ceil_divide(arguments.pieces.count, kSketchPieces);
}
inline std::size_t blocks_of(const SketchWeightedArguments& arguments) {
    return arguments.runs;
}
inline std::size_t blocks_of(const AddSketchesArguments& /*arguments*/) {
    return 1;
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
    const Share share = share_of(thread, piece);
#pragma unroll 1
    for (unsigned first = 0; first < kGroups; first += kElementBatch) {
        decltype(load(0U)) elements[kElementBatch] = {};
#pragma unroll
        for (unsigned k = 0; k < kElementBatch; ++k) {
            if (share.has(first + k)) elements[k] = load(share.at(first + k));
        }
#pragma unroll
        for (unsigned k = 0; k < kElementBatch; ++k) {
            if (share.has(first + k)) store(share.at(first + k), elements[k]);
        }
    }
}

/// An element of this rank's own gradients as it lies in memory, and what it is then. (What is loaded and used at once
/// would be waited for before the next element's load.)
ONEBIT_DEVICE inline std::uint32_t load_gradient(const Piece& piece, unsigned i) {
    if (piece.gradient_type == ONEBIT_FLOAT32) return static_cast<const std::uint32_t*>(piece.gradients)[i];
    return static_cast<const std::uint16_t*>(piece.gradients)[i];
}
ONEBIT_DEVICE inline float gradient_of(const Piece& piece, std::uint32_t bits) {
    if (piece.gradient_type == ONEBIT_FLOAT32) return std::bit_cast<float>(bits);
    const auto half = static_cast<std::uint16_t>(bits);
    return piece.gradient_type == ONEBIT_FLOAT16 ? widened_float16(half) : widened_bfloat16(half);
}

ONEBIT_DEVICE inline void write_copy(const Piece& piece, unsigned i, float parameter) {
    if (piece.copy == nullptr) return;
    if (piece.copy_type == ONEBIT_FLOAT32) {
        static_cast<float*>(piece.copy)[i] = parameter;
        return;
    }
    static_cast<std::uint16_t*>(piece.copy)[i] =
        piece.copy_type == ONEBIT_FLOAT16 ? narrowed_float16(parameter) : narrowed_bfloat16(parameter);
}

ONEBIT_DEVICE inline void write_parameter(const Piece& piece, unsigned i, float parameter) {
    piece.parameters[i] = parameter;
    write_copy(piece, i, parameter);
}

// A piece may begin at any bit of a word: every thread asks for the word that it needs, which the first cache has.
ONEBIT_DEVICE inline std::uint32_t load_word_of(const std::uint32_t* words, std::size_t bit) {
    return words[bit / kWordElements];
}
ONEBIT_DEVICE inline bool bit_of(std::uint32_t word, std::size_t bit) {
    return (word >> (bit % kWordElements) & 1) != 0;
}

/// The words that an element's bits are in.
struct MessageWords {
    std::uint32_t signs, valid;
};

ONEBIT_DEVICE inline MessageWords load_message(const Messages& messages, const Piece& piece, unsigned i) {
    return {load_word_of(messages.words, piece.first_sign + i),
            messages.mask != nullptr ? load_word_of(messages.mask, piece.offset + i) : ~std::uint32_t{0}};
}
ONEBIT_DEVICE inline float scale_of(const Messages& messages, const Piece& piece) {
    return std::bit_cast<float>(messages.words[piece.scale_word]);
}
/// What they say of the element, where all that take part are plus or minus one value.
ONEBIT_DEVICE inline float decoded(const MessageWords& words, const Piece& piece, unsigned i, float magnitude) {
    const float value = bit_of(words.signs, piece.first_sign + i) ? magnitude : -magnitude;
    return bit_of(words.valid, piece.offset + i) ? value : 0.0F;
}

} // namespace onebit::cuda
