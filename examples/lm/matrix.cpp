// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "matrix.hpp"

#include <algorithm>
#include <vector>

// One build for every x86-64, and fast on modern ones: the compiler makes several versions of the marked function and
// the loader picks one. Elsewhere (other processors, older compilers) the mark is empty and the code is the same.
#if defined(__x86_64__) && defined(__linux__) && \
    ((defined(__clang__) && __clang_major__ >= 14) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12))
#define LM_CLONES __attribute__((target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define LM_CLONES
#endif

namespace lm {
namespace {

constexpr std::size_t kLine = 16;           // floats in a cache line
constexpr std::size_t kCached = 128 * 1024; // floats that a second-level cache holds

// Sets two rows of c to the contribution of four rows of b, or adds the contribution to them (kMore). Each value is
// used two or four times once it is loaded. The compiler turns the loop over j into vector instructions.
template <bool kMore>
[[gnu::always_inline]] inline void four_rows(const float* __restrict a0, const float* __restrict a1,
                                             const float* __restrict b, float* __restrict c0, float* __restrict c1,
                                             std::size_t n) {
    const float *b0 = b, *b1 = b + n, *b2 = b + 2 * n, *b3 = b + 3 * n;
    const float a00 = a0[0], a01 = a0[1], a02 = a0[2], a03 = a0[3];
    const float a10 = a1[0], a11 = a1[1], a12 = a1[2], a13 = a1[3];
    for (std::size_t j = 0; j < n; ++j) {
        c0[j] = (kMore ? c0[j] : 0.0f) + (a00 * b0[j] + a01 * b1[j] + a02 * b2[j] + a03 * b3[j]);
        c1[j] = (kMore ? c1[j] : 0.0f) + (a10 * b0[j] + a11 * b1[j] + a12 * b2[j] + a13 * b3[j]);
    }
}

template <bool kMore>
[[gnu::always_inline]] inline void one_row(float a, const float* __restrict b, float* __restrict c, std::size_t n) {
    for (std::size_t j = 0; j < n; ++j) c[j] = (kMore ? c[j] : 0.0f) + a * b[j];
}

// Some rows of c, an even number of them unless they are the last.
[[gnu::always_inline]] inline void multiply_rows(const float* a, const float* b, float* c, std::size_t m, std::size_t k,
                                                 std::size_t n) {
    const std::size_t fours = k / 4 * 4;
    const std::size_t pairs = fours == 0 ? 0 : m / 2 * 2;
    for (std::size_t p = 0; p < fours; p += 4) { // four rows of b stay in the first-level cache for all of c
        for (std::size_t i = 0; i < pairs; i += 2) {
            const float *a0 = a + i * k + p, *a1 = a0 + k;
            float *c0 = c + i * n, *c1 = c0 + n;
            if (p == 0) {
                four_rows<false>(a0, a1, b, c0, c1, n);
            } else {
                four_rows<true>(a0, a1, b + p * n, c0, c1, n);
            }
        }
    }
    for (std::size_t i = 0; i < m; ++i) { // the leftovers of an odd m, or of a k that is no multiple of four
        std::size_t p = i < pairs ? fours : 0;
        if (p == 0) one_row<false>(a[i * k + p++], b, c + i * n, n);
        for (; p < k; ++p) one_row<true>(a[i * k + p], b + p * n, c + i * n, n);
    }
}

// The work of multiply(). Apart from it, because clang 14 doesn't find a cloned function from another file.
LM_CLONES void multiply_cloned(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    const std::size_t rows = std::max<std::size_t>(kCached / n / 2 * 2, 2);
    for (std::size_t i = 0; i < m; i += rows) multiply_rows(a + i * k, b, c + i * n, std::min(rows, m - i), k, n);
}

// Keeps four cache lines of sums: enough to hide an addition's latency.
[[gnu::always_inline]] inline float dot(const float* __restrict a, const float* __restrict b, std::size_t k) {
    typedef float Line [[gnu::vector_size(kLine * sizeof(float)), gnu::aligned(alignof(float)), gnu::may_alias]];
    Line sums[4] = {};
    std::size_t p = 0;
    for (; p + 4 * kLine <= k; p += 4 * kLine) {
        const Line *a_lines = reinterpret_cast<const Line*>(a + p), *b_lines = reinterpret_cast<const Line*>(b + p);
        for (std::size_t s = 0; s < 4; ++s) sums[s] += a_lines[s] * b_lines[s];
    }
    const Line sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float total = 0;
    for (std::size_t i = 0; i < kLine; ++i) total += sum[i];
    for (; p < k; ++p) total += a[p] * b[p];
    return total;
}

// The work of multiply_transposed() for few rows of a: b is read once, in its order.
LM_CLONES void dots_cloned(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t i = 0; i < m; ++i) c[i * n + j] = dot(a + i * k, b + j * k, k);
    }
}

// The same for many rows of a: transposes one panel of b at a time. This pays, as all rows of a use the panel.
void multiply_panels(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    const std::size_t columns = std::min(n, std::max(kCached / k / kLine * kLine, kLine));
    std::vector<float> panel(k * columns), of_panel(m * columns);
    for (std::size_t j = 0; j < n; j += columns) {
        const std::size_t count = std::min(columns, n - j);
        transpose(b + j * k, panel.data(), count, k);
        multiply(a, panel.data(), of_panel.data(), m, k, count);
        for (std::size_t i = 0; i < m; ++i) std::copy_n(&of_panel[i * count], count, c + i * n + j);
    }
}

} // namespace

void multiply(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    multiply_cloned(a, b, c, m, k, n);
}

void multiply_transposed(const float* a, const float* b, float* c, std::size_t m, std::size_t k, std::size_t n) {
    constexpr std::size_t kFew = 8;
    m < kFew ? dots_cloned(a, b, c, m, k, n) : multiply_panels(a, b, c, m, k, n);
}

void transpose(const float* in, float* out, std::size_t m, std::size_t n) {
    for (std::size_t i_block = 0; i_block < m; i_block += kLine) {
        for (std::size_t j_block = 0; j_block < n; j_block += kLine) {
            for (std::size_t j = j_block; j < std::min(j_block + kLine, n); ++j) {
                for (std::size_t i = i_block; i < std::min(i_block + kLine, m); ++i) out[j * m + i] = in[i * n + j];
            }
        }
    }
}

} // namespace lm
