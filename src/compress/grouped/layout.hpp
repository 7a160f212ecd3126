// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/partition.hpp"

/// Where things lie in a message of a grouped code (docs/WIRE_FORMAT.md, "Grouped codes").
namespace onebit {

/// Elements that share a scale.
inline constexpr std::size_t kGroupElements = 256;
static_assert(kBlockElements % kGroupElements == 0 && kGroupElements % kWordElements == 0);

/// Words of scales that so many elements of a block have.
constexpr std::size_t scale_words(std::size_t elements) {
    return ceil_divide(elements, kGroupElements);
}

/// Words of codes that they have: `bits` for each run of 32 elements.
constexpr std::size_t code_words(unsigned bits, std::size_t elements) {
    return bits * ceil_divide(elements, kWordElements);
}

/// The first word of a block in its chunk's message. For block = chunk.blocks(): the message's length.
constexpr std::size_t grouped_word(unsigned bits, const Chunk& chunk, std::size_t block) {
    const std::size_t before = std::min(block * kBlockElements, chunk.count);
    return scale_words(before) + code_words(bits, before); // all but the last block are whole groups
}

/// Where element `j` of a run has its code.
struct CodePlace {
    std::size_t word;
    unsigned shift;
};
/// A byte holds two codes of four bits, of elements 16 apart, or four codes of two bits, of elements 8 apart. So
/// vectors of bytes are made without a shuffle. Codes of one bit are in order, like masks of vectors.
template <unsigned kBits>
constexpr CodePlace code_place(std::size_t j) {
    static_assert(kBits == 1 || kBits == 2 || kBits == 4 || kBits == 8 || kBits == 16);
    if constexpr (kBits == 1) {
        return {0, static_cast<unsigned>(j)};
    } else if constexpr (kBits < 8) {
        constexpr std::size_t kBytes = 4 * kBits; // of a run
        return {j % kBytes / 4, static_cast<unsigned>(j % 4 * 8 + j / kBytes * kBits)};
    } else {
        constexpr std::size_t kInWord = 32 / kBits;
        return {j / kInWord, static_cast<unsigned>(j % kInWord * kBits)};
    }
}

} // namespace onebit
