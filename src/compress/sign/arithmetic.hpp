// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/sign/kernels.hpp"
#include "core/host_device.hpp"
#include "core/partition.hpp"
#include "core/rounded.hpp"

/// The parts of the sign codec that CPU and GPU share: where things lie in a message, how an element is corrected, how
/// a block is added up, and how its scale is computed (docs/WIRE_FORMAT.md).
namespace onebit {

// ---- The message ----

/// The first word of a block's signs in its chunk's message. For block = chunk.blocks(): where the blocks end.
constexpr std::size_t sign_word(onebit_group_t group, const Chunk& chunk, std::size_t block) {
    const std::size_t signs = std::min(block * (kBlockElements / kWordElements), chunk.words());
    return group == ONEBIT_GROUP_BLOCK ? signs + block : signs;
}

/// The word that holds its scale: a block's scale comes right after its signs, a tensor's after all blocks.
constexpr std::size_t scale_word(onebit_group_t group, const Chunk& chunk, std::size_t block) {
    return group == ONEBIT_GROUP_BLOCK ? sign_word(group, chunk, block + 1) - 1
                                       : sign_word(group, chunk, chunk.blocks());
}

// ---- An element ----

/// What was not delivered of a value that was sent with this scale.
ONEBIT_HOST_DEVICE inline float error_of(float corrected, float scale) {
    return rounded::add(corrected, corrected >= 0 ? -scale : scale);
}

// ---- A block ----

/// What an element adds to its block's sum: its square or its magnitude.
template <typename Real>
ONEBIT_HOST_DEVICE Real addend_of(float value, onebit_scale_t scale) {
    const Real x = value;
    return scale == ONEBIT_SCALE_L2 ? rounded::multiply(x, x) : std::fabs(x);
}

/// Whether a block's sum in float is good enough. It may have overflowed, and a small sum of squares may have lost
/// terms to underflow.
ONEBIT_HOST_DEVICE inline bool is_trusted(float sum) {
    constexpr float kLeast = 0x1p-80F;
    return sum >= kLeast && sum <= FLT_MAX;
}

/// Lanes in which the sums of a tensor's blocks are added up: as many as a GPU's thread block has threads.
inline constexpr std::size_t kTensorLanes = 256;

/// The scale of a group with this sum, of which so many elements take part.
ONEBIT_HOST_DEVICE inline float scale_for(double sum, std::size_t elements, onebit_scale_t scale) {
    if (elements == 0) return 0;
    const double mean = sum / static_cast<double>(elements);
    return static_cast<float>(scale == ONEBIT_SCALE_L2 ? std::sqrt(mean) : mean);
}

} // namespace onebit
