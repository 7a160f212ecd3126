// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/stores.hpp"

namespace onebit {

/// Consecutive groups in a block's message: where their scales and their codes begin.
struct GroupsToRead {
    const std::uint32_t* scales;
    const std::uint32_t* codes;
};
struct GroupsToWrite {
    std::uint32_t* scales;
    std::uint32_t* codes;
};

/// How random numbers are drawn: for element i of a block, drawn(seed, i) of core/random_bits.hpp.
struct DrawnElements {
    std::uint32_t seed;
    std::uint32_t first; ///< the first element that a kernel works on, in the block
};

/// The kernels of one code. Each works on some groups of a block: `count` elements. The last group may be short at the
/// end of a chunk.
///   before, after  what is still to be delivered, aligned to 64 bytes
///   valid          mask words: element 32 w + i takes part if bit i of word w is 1; NULL: all take part
///   stores         how decoded values are written, and `after` where it is not `before` and there is no mask; past
///                  the caches: then order_stores, on the same thread
struct GroupedKernels {
    onebit_codec_t codec;
    unsigned bits; ///< of an element

    /// Encodes c = values[i] + before[i]; after[i] becomes what the code doesn't express of c. `after` is `before`, or
    /// doesn't overlap it. If a group is not finite, its scale is not finite.
    void (*encode)(const float* values, const float* before, float* after, Stores stores, const std::uint32_t* valid,
                   std::size_t count, const GroupsToWrite& to);
    /// The same, rounded up or down at random; NULL: the code can't.
    void (*encode_stochastic)(const DrawnElements& draws, const float* values, const float* before, float* after,
                              Stores stores, const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to);
    /// sums[i] += what the code stands for, times `share`.
    void (*add)(const GroupsToRead& from, float share, std::size_t count, float* sums);
    /// values[i] = what the code stands for, 0 where not valid.
    void (*decode)(const GroupsToRead& from, const std::uint32_t* valid, std::size_t count, Stores stores,
                   float* values);
};

/// One implementation of all codes in codes.def.
struct GroupedTable {
    const char* name; ///< of its instruction set; "reference": the scalar twins
    GroupedKernels codes[
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) 1 +
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
        0];
};

/// The readable scalar version.
const GroupedTable& reference_grouped_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const GroupedTable* const> available_grouped_kernels();

} // namespace onebit
