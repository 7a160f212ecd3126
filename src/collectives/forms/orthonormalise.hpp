// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace onebit {

/// Makes vector `k` orthogonal to the vectors before it, which are orthonormal (Gram and Schmidt, twice), and gives it
/// the norm 1. A vector has `length` consecutive numbers. False where nothing is left of it, as far as floats can tell.
/// The same bits everywhere.
bool make_orthonormal(double* vectors, std::size_t k, std::size_t length);

/// Makes `count` vectors orthonormal, in order. A vector of which nothing is left gets its numbers from
/// replacement(vector, number), and is made orthonormal like the others. If nothing is left of these numbers either,
/// the vector becomes zero.
template <typename Replacement>
void orthonormalise(double* vectors, std::size_t count, std::size_t length, const Replacement& replacement) {
    for (std::size_t k = 0; k < count; ++k) {
        double* const vector = vectors + k * length;
        if (make_orthonormal(vectors, k, length)) continue;
        for (std::size_t i = 0; i < length; ++i) vector[i] = replacement(k, i);
        if (!make_orthonormal(vectors, k, length)) std::fill_n(vector, length, 0.0);
    }
}

} // namespace onebit
