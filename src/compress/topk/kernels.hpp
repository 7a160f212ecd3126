// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/partition.hpp"

namespace onebit {

/// Elements of a block that are looked at together: a word has a bit for each.
inline constexpr std::size_t kRunElements = kWordElements;
inline constexpr std::size_t kBlockRuns = kBlockElements / kRunElements;

/// Kernels of the top-k code, on `count` elements from the first one of a run on. Magnitudes are a float's bits without
/// its sign, which are in the order of what they stand for; a NaN's are above all others.
struct TopkKernels {
    const char* name; ///< of its instruction set; "reference": the scalar twins

    /// after[i] = values[i] + before[i], 0 where not valid (mask words, NULL: all are). `after` is `before`, or doesn't
    /// overlap it.
    void (*correct)(const float* values, const float* before, float* after, const std::uint32_t* valid,
                    std::size_t count);
    /// The largest magnitude of each run, and of all.
    std::uint32_t (*find_largest)(const float* values, std::size_t count, std::uint32_t* of_runs);
    /// Bit i of word w: whether element 32 w + i has at least the magnitude `bound`. `of_runs`: as above.
    void (*find_at_least)(const float* values, std::size_t count, const std::uint32_t* of_runs, std::uint32_t bound,
                          std::uint32_t* words);
};

/// The readable scalar version.
const TopkKernels& reference_topk_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const TopkKernels* const> available_topk_kernels();

} // namespace onebit
