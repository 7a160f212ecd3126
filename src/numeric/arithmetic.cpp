// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "numeric/arithmetic.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/parallel.hpp"
#include "core/partition.hpp"
#include "numeric/mean.hpp"

namespace onebit {
namespace {

/// Calls body(begin, end) for every block.
template <typename Body>
void for_each_block(std::size_t count, unsigned threads, const Body& body) {
    parallel_for(0, ceil_divide(count, kBlockElements), threads, [&](std::size_t block) {
        body(block * kBlockElements, std::min((block + 1) * kBlockElements, count));
    });
}

/// Calls body(i) for every element, block by block.
template <typename Body>
void for_each_element(std::size_t count, unsigned threads, const Body& body) {
    for_each_block(count, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) body(i);
    });
}

} // namespace

void HostArithmetic::add(const float* from, std::size_t count, float* to) {
    for_each_element(count, threads_, [=](std::size_t i) { to[i] += from[i]; });
}

namespace {

/// The product, with the largest number in place of infinity where the value is finite.
float saturating_product(float factor, float value) {
    const float exact = factor * value;
    return std::fabs(exact) > FLT_MAX && is_finite(value) ? std::copysign(FLT_MAX, exact) : exact;
}

} // namespace

void HostArithmetic::multiply(const float* from, float factor, std::size_t count, float* to) {
    const auto write = [&](const auto& product) {
        if (from == to) { // compilers vectorize loops over one array, or over two that don't overlap
            for_each_element(count, threads_, [=](std::size_t i) { to[i] = product(to[i]); });
        } else {
            for_each_element(count, threads_, [=](std::size_t i) { to[i] = product(from[i]); });
        }
    };
    if (factor == 1) {
        if (from == to) return;
        for_each_block(count, threads_,
                       [=](std::size_t begin, std::size_t end) { std::copy(from + begin, from + end, to + begin); });
    } else if (std::fabs(factor) < 1) { // nothing overflows
        write([factor](float value) { return factor * value; });
    } else {
        write([factor](float value) { return saturating_product(factor, value); });
    }
}

/// Block by block, so that a sum is in the cache while it grows.
void HostArithmetic::sum(std::span<float* const> parts, float factor, std::size_t count, float* to) {
    for_each_block(count, threads_, [=](std::size_t begin, std::size_t end) {
        const std::size_t length = end - begin;
        alignas(64) float sum[kBlockElements];
        std::copy_n(parts[0] + begin, length, sum);
        for (std::size_t r = 1; r < parts.size(); ++r) {
            const float* const values = parts[r] + begin;
            for (std::size_t i = 0; i < length; ++i) sum[i] += values[i];
        }
        for (std::size_t i = 0; i < length; ++i) sum[i] *= factor;
        const bool finite = all_finite(sum, length);
        for (std::size_t i = 0; i < length && !finite; ++i) {
            sum[i] = checked_mean(sum[i], parts.size(), factor, [&](std::size_t p) { return parts[p][begin + i]; });
        }
        std::copy_n(sum, length, to + begin);
    });
}

} // namespace onebit
