// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The three matrix operations that the language model is made of. Matrices are dense, row-major arrays of float, and
// not empty.

#ifndef ONEBIT_EXAMPLES_LM_MATRIX_HPP
#define ONEBIT_EXAMPLES_LM_MATRIX_HPP

#include <cstddef>

namespace lm {

// c[m][n] = a[m][k] * b[k][n]. The arrays don't overlap.
void multiply(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n);

// c[m][n] = a[m][k] * (the transpose of b[n][k]). The arrays don't overlap.
void multiply_transposed(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n);

// out[n][m] = the transpose of in[m][n]. The arrays don't overlap.
void transpose(const float* in, float* out, std::size_t m, std::size_t n);

} // namespace lm

#endif // ONEBIT_EXAMPLES_LM_MATRIX_HPP
