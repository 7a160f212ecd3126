// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/partition.hpp"

namespace onebit {

/// Elements of a block that are examined together.
inline constexpr std::size_t kRunElements = kWordElements;
inline constexpr std::size_t kBlockRuns = kBlockElements / kRunElements;

/// Positions in a block: the first kMost, where there are more; and spare room behind them.
struct Positions {
    static constexpr std::size_t kMost = 512;
    std::uint16_t at[kMost + kRunElements];
};

/// Kernels of sparse codes, on `count` elements of a block from the first one of a run on. A magnitude is a float
/// without its sign. Magnitudes are compared as their bits: a NaN's is above all others.
struct SparseKernels {
    const char* name; ///< of its instruction set; "reference": the scalar twins

    /// after[i] = values[i] + before[i], 0 where not valid (mask words, NULL: all are). `after` is `before`, or doesn't
    /// overlap it.
    void (*correct)(const float* values, const float* before, float* after, const std::uint32_t* valid,
                    std::size_t count);
    /// The largest magnitude of each run, and of all.
    float (*find_largest)(const float* values, std::size_t count, float* of_runs);
    /// Counts the elements with at least the magnitude `bound`, and lists the first Positions::kMost of them, in order.
    /// Entries behind them are undefined. `of_runs`: as above.
    std::size_t (*find_at_least)(const float* values, std::size_t count, const float* of_runs, float bound,
                                 Positions* positions);
    /// The k-th largest magnitude, k from 1 on.
    float (*find_kth)(const float* values, std::size_t count, std::size_t k);
};

/// The readable scalar version.
const SparseKernels& reference_sparse_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const SparseKernels* const> available_sparse_kernels();

} // namespace onebit
