// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace onebit {

/// Consecutive elements of one row of a matrix, and what was left of them by the call before: what is approximated is
/// their sum.
struct RowPart {
    const float* values;
    const float* errors;
};

/// Elements of a row whose products are added up in lanes before they are added to the row's sum.
inline constexpr std::size_t kStripColumns = 1024;
/// Rows that add_rows takes at a time: each sum is then loaded and stored once for all of them.
inline constexpr std::size_t kRowsAtOnce = 4;

/// Kernels of approximations by matrices of a low rank. A factor has `rank` numbers for each row, together; or for each
/// column, `stride` apart. Products are added up in float32, in a fixed order.
struct LowRankKernels {
    const char* name; ///< of its instruction set; "reference": the scalar twins

    /// sums[k] += the sum over c of row[c] * columns[k * stride + c], added up in the lanes of numeric/lanes.hpp.
    /// Returns the largest magnitude of the row; an infinity's and a NaN's are above all others. count <=
    /// kStripColumns.
    float (*project)(const RowPart& row, std::size_t count, const float* columns, std::size_t stride, std::size_t rank,
                     float* sums);
    /// sums[k * stride + c] += rows[0][c] * left[k], then rows[1][c] * left[rank + k], ... Up to kRowsAtOnce rows.
    void (*add_rows)(const RowPart* rows, std::size_t row_count, std::size_t count, const float* left, std::size_t rank,
                     std::size_t stride, float* sums);
    /// results[c] = factor * (the sum over k of left[k] * mean[k * stride + c]), and in errors[c] what is left of the
    /// row: row[c] - (the same sum over `own`). Each may be what the row has in its place.
    void (*expand)(const RowPart& row, std::size_t count, const float* left, std::size_t rank, std::size_t stride,
                   const float* own, const float* mean, float factor, float* results, float* errors);
};

/// The readable scalar version.
const LowRankKernels& reference_low_rank_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const LowRankKernels* const> available_low_rank_kernels();

/// Those of an instruction set, or the reference.
const LowRankKernels& low_rank_kernels(const std::string& name);

} // namespace onebit
