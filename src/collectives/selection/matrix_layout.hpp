// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace onebit {

/// The largest number of directions of a matrix, and the default number.
inline constexpr std::size_t kMostRank = 64;
inline constexpr std::size_t kDefaultRank = 4;

/// A part of the buffer that is a matrix, row after row; and where its factors lie in those of all matrices.
struct Matrix {
    std::size_t begin = 0; ///< its first element in the buffer
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t rank = 0;  ///< of its approximation; 0: averaged as it is, because factors would be no fewer numbers
    std::size_t left = 0;  ///< in the left factors: rows * rank numbers, row after row; or the matrix itself
    std::size_t right = 0; ///< in the right factors: rank * columns numbers, as right_index() says

    std::size_t elements() const { return rows * columns; }
    bool is_exact() const { return rank == 0; }
    std::size_t left_count() const { return is_exact() ? elements() : rows * rank; }
    std::size_t right_count() const { return rank * columns; }
};

/// How a buffer is cut into matrices, and how many numbers their factors are.
class MatrixLayout {
  public:
    MatrixLayout() = default;
    /// `shapes`: rows and columns of each, one matrix after the other.
    MatrixLayout(std::span<const std::uint64_t> shapes, std::size_t rank);

    std::span<const Matrix> matrices() const { return matrices_; }
    std::size_t elements() const {
        return matrices_.empty() ? 0 : matrices_.back().begin + matrices_.back().elements();
    }
    /// Numbers that ranks average in a call: first the left factors and the exact matrices, then the right factors.
    std::size_t left_count() const { return left_count_; }
    std::size_t right_count() const { return right_count_; }
    /// Of the matrices.
    std::uint64_t hash() const;
    /// Whether any matrix has factors.
    bool compresses() const { return right_count_ > 0; }

  private:
    std::vector<Matrix> matrices_;
    std::size_t left_count_ = 0;
    std::size_t right_count_ = 0;
};

} // namespace onebit
