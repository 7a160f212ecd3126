// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "matrix.hpp"

#include <algorithm>

// One build for every x86-64, yet quick on the modern ones: the compiler makes several versions of the marked function
// and the loader picks one. Elsewhere (other processors, older compilers) the mark is empty and the code the same.
#if defined(__x86_64__) && defined(__linux__) && \
    ((defined(__clang__) && __clang_major__ >= 14) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12))
#define LM_CLONES __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define LM_CLONES
#endif

namespace lm {
namespace {

// Adds to two rows of c what four rows of b contribute: each value is used two or four times once it is loaded, and
// the loop over j is the one that the compiler turns into vector instructions.
[[gnu::always_inline]] inline void add_four_rows(const float* __restrict a0, const float* __restrict a1,
                                                 const float* __restrict b, float* __restrict c0, float* __restrict c1,
                                                 std::size_t n) {
    const float *b0 = b, *b1 = b + n, *b2 = b + 2 * n, *b3 = b + 3 * n;
    const float a00 = a0[0], a01 = a0[1], a02 = a0[2], a03 = a0[3];
    const float a10 = a1[0], a11 = a1[1], a12 = a1[2], a13 = a1[3];
    for (std::size_t j = 0; j < n; ++j) {
        c0[j] += a00 * b0[j] + a01 * b1[j] + a02 * b2[j] + a03 * b3[j];
        c1[j] += a10 * b0[j] + a11 * b1[j] + a12 * b2[j] + a13 * b3[j];
    }
}

[[gnu::always_inline]] inline void add_one_row(float a, const float* __restrict b, float* __restrict c, std::size_t n) {
    for (std::size_t j = 0; j < n; ++j) c[j] += a * b[j];
}

// The work of multiply(). Apart from it, because clang 14 doesn't find a cloned function from another file.
LM_CLONES void multiply_cloned(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    std::fill_n(c, m * n, 0.0f);
    const std::size_t pairs = m / 2 * 2;
    const std::size_t fours = k / 4 * 4;
    for (std::size_t p = 0; p < fours; p += 4) { // four rows of b stay in the first-level cache for all of c
        for (std::size_t i = 0; i < pairs; i += 2) {
            const float* a_row = a + i * k + p;
            add_four_rows(a_row, a_row + k, b + p * n, c + i * n, c + (i + 1) * n, n);
        }
    }
    for (std::size_t i = 0; i < m; ++i) { // the leftovers of an odd m, or of a k that is no multiple of four
        for (std::size_t p = i < pairs ? fours : 0; p < k; ++p) add_one_row(a[i * k + p], b + p * n, c + i * n, n);
    }
}

} // namespace

void multiply(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    multiply_cloned(a, b, c, m, k, n);
}

void transpose(const float* in, float* out, std::size_t m, std::size_t n) {
    constexpr std::size_t kBlock = 16; // floats in a cache line
    for (std::size_t i_block = 0; i_block < m; i_block += kBlock) {
        for (std::size_t j_block = 0; j_block < n; j_block += kBlock) {
            for (std::size_t j = j_block; j < std::min(j_block + kBlock, n); ++j) {
                for (std::size_t i = i_block; i < std::min(i_block + kBlock, m); ++i) out[j * m + i] = in[i * n + j];
            }
        }
    }
}

} // namespace lm
