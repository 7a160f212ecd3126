// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/codec.hpp"
#include "core/partition.hpp"

/// Where things lie in a message of few elements of each block (docs/WIRE_FORMAT.md, "Few elements of each block").
namespace onebit {

/// Words for so many entries of so many bits each.
constexpr std::size_t entry_words(unsigned bits, std::size_t entries) {
    return ceil_divide(entries * bits, std::size_t{32});
}

constexpr std::uint32_t read_entry(const std::uint32_t* words, unsigned bits, std::size_t entry) {
    const std::size_t begin = entry * bits;
    const unsigned shift = begin % 32;
    std::uint32_t value = words[begin / 32] >> shift;
    if (shift + bits > 32) value |= words[begin / 32 + 1] << (32 - shift);
    return value & ((1U << bits) - 1);
}

/// The words must be 0 before.
constexpr void write_entry(std::uint32_t* words, unsigned bits, std::size_t entry, std::uint32_t value) {
    const std::size_t begin = entry * bits;
    const unsigned shift = begin % 32;
    words[begin / 32] |= value << shift;
    if (shift + bits > 32) words[begin / 32 + 1] |= value >> (32 - shift);
}

/// Elements of a block that are kept by default, and at most. The most is not above the number of runs of 32 in a
/// block, because topk.cpp finds the largest elements by the largest of each run.
inline constexpr std::size_t kDefaultKept = 64;
inline constexpr std::size_t kMostKept = 128;
static_assert(kMostKept <= kBlockElements / kWordElements);
/// Bits of a code: an integer, or a sign.
inline constexpr unsigned kLongCode = 8;
inline constexpr unsigned kShortCode = 2;

/// A block's part of a message: its scale, the words that say which elements are kept, and their codes.
struct SparseLayout {
    std::size_t kept = kDefaultKept; ///< of a whole block
    unsigned value_bits = kLongCode; ///< of a code
    unsigned position_bits = 0;      ///< of each kept element; 0: one word says all positions of a block

    constexpr SparseLayout(const SparseSettings& settings, unsigned bits_of_position)
        : position_bits(bits_of_position) {
        if (settings.kept != 0) kept = settings.kept;
        if (settings.value_bits != 0) value_bits = settings.value_bits;
    }

    constexpr std::size_t entries(std::size_t elements) const { return ceil_divide(kept * elements, kBlockElements); }
    static constexpr std::size_t kFirstPosition = 1;
    constexpr std::size_t first_code(std::size_t elements) const {
        const std::size_t words = position_bits == 0 ? 1 : entry_words(position_bits, entries(elements));
        return kFirstPosition + words;
    }
    constexpr std::size_t words(std::size_t elements) const {
        return elements == 0 ? 0 : first_code(elements) + entry_words(value_bits, entries(elements));
    }
    constexpr double bits_per_element() const {
        return 32.0 * static_cast<double>(words(kBlockElements)) / static_cast<double>(kBlockElements);
    }
    /// The first word of a block in its chunk's message. For block = chunk.blocks(): the message's length.
    constexpr std::size_t first_word(const Chunk& chunk, std::size_t block) const {
        if (block < chunk.blocks()) return block * words(kBlockElements);
        const std::size_t whole = chunk.count / kBlockElements;
        return whole * words(kBlockElements) + words(chunk.count % kBlockElements);
    }
};

} // namespace onebit
