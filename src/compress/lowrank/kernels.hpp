// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

namespace onebit {

/// Columns whose right factors lie together: the factors of the first direction, of the second, and so on. Then the
/// factors of the next columns follow, which may be fewer. So a pass along some rows reads one piece of memory, not one
/// for each direction.
inline constexpr std::size_t kTileColumns = 16;

/// Where direction k's factor of a column lies among the right factors of a matrix.
constexpr std::size_t right_index(std::size_t columns, std::size_t rank, std::size_t k, std::size_t column) {
    const std::size_t tile = column - column % kTileColumns;
    return tile * rank + k * std::min(kTileColumns, columns - tile) + column % kTileColumns;
}

/// Elements of a row whose products are added up in lanes before they are added to the row's sum; whole tiles.
inline constexpr std::size_t kStripColumns = 1024;
/// The most rows that kernels take at a time: factors are then loaded once for all of these rows.
inline constexpr std::size_t kRowsAtOnce = 4;

/// Consecutive elements of a row, and the error that the call before left of each. Kernels approximate their sum, x.
struct RowPart {
    const float* values;
    const float* errors;
};

/// Where a RowPart's results and new errors go: results may replace its values, and errors its errors.
struct ExpandedRow {
    float* results;
    float* errors;
};

/// Kernels of approximations by matrices of a low rank, on `count` columns of up to kRowsAtOnce rows. A row's left
/// factors are `rank` numbers; the next row's follow them. `right` begins with the first column, with which a tile
/// begins. Products are added up in float32, in a fixed order.
struct LowRankKernels {
    const char* name; ///< of its instruction set; "reference": the scalar twins

    /// sums[r * rank + k] += the sum over c of x[r][c] * right[k][c], in 16 lanes that are then added up as a tree
    /// (numeric/lanes.hpp). Returns the largest |x|; an infinity's and a NaN's are above all others. count <=
    /// kStripColumns.
    float (*project)(const RowPart* rows, std::size_t row_count, std::size_t count, const float* right,
                     std::size_t rank, float* sums);
    /// right[k][c] += x[0][c] * left[k], then x[1][c] * left[rank + k], ...
    void (*add_rows)(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
                     float* right);
    /// results[r][c] = factor * (the sum over k of left[r * rank + k] * mean[k][c]), and errors[r][c] = x[r][c] - (the
    /// same sum over `own`).
    void (*expand)(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
                   const float* own, const float* mean, float factor, const ExpandedRow* expanded);
};

/// The readable scalar version.
const LowRankKernels& reference_low_rank_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const LowRankKernels* const> available_low_rank_kernels();

/// The kernels of an instruction set, or the reference.
const LowRankKernels& low_rank_kernels(const std::string& name);

} // namespace onebit
