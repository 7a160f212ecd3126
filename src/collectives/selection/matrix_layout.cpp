// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/selection/matrix_layout.hpp"

#include "core/hash.hpp"

namespace onebit {

MatrixLayout::MatrixLayout(std::span<const std::uint64_t> shapes, std::size_t rank) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i + 1 < shapes.size(); i += 2) {
        Matrix matrix;
        matrix.begin = begin;
        matrix.rows = shapes[i];
        matrix.columns = shapes[i + 1];
        const bool pays = rank * (matrix.rows + matrix.columns) < matrix.elements();
        matrix.rank = pays ? rank : 0;
        matrix.left = left_count_;
        matrix.right = right_count_;
        begin += matrix.elements();
        left_count_ += matrix.left_count();
        right_count_ += matrix.right_count();
        matrices_.push_back(matrix);
    }
}

std::uint64_t MatrixLayout::hash() const {
    std::vector<std::uint64_t> numbers;
    for (const Matrix& matrix : matrices_) numbers.insert(numbers.end(), {matrix.rows, matrix.columns, matrix.rank});
    return hash_bytes(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

} // namespace onebit
