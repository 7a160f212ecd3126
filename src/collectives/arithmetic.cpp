// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/arithmetic.hpp"

#include <algorithm>

#include "core/parallel.hpp"
#include "core/partition.hpp"

namespace onebit {
namespace {

/// Calls body(i) for every element, block by block.
template <typename Body>
void for_each_element(std::size_t count, unsigned threads, const Body& body) {
    parallel_for(0, ceil_divide(count, kBlockElements), threads, [&](std::size_t block) {
        const std::size_t end = std::min((block + 1) * kBlockElements, count);
        for (std::size_t i = block * kBlockElements; i < end; ++i) body(i);
    });
}

} // namespace

void HostArithmetic::add(const float* from, std::size_t count, float* to) {
    for_each_element(count, threads_, [=](std::size_t i) { to[i] += from[i]; });
}

void HostArithmetic::multiply(const float* from, float factor, std::size_t count, float* to) {
    if (from == to) { // by itself, for compilers make vector instructions of one array or of two that don't overlap
        for_each_element(count, threads_, [=](std::size_t i) { to[i] *= factor; });
    } else {
        for_each_element(count, threads_, [=](std::size_t i) { to[i] = factor * from[i]; });
    }
}

/// Block by block, so that a sum is in the cache while it grows.
void HostArithmetic::sum(std::span<float* const> parts, float factor, std::size_t count, float* to) {
    parallel_for(0, ceil_divide(count, kBlockElements), threads_, [=](std::size_t block) {
        const std::size_t begin = block * kBlockElements;
        const std::size_t length = std::min(kBlockElements, count - begin);
        alignas(64) float sum[kBlockElements];
        std::copy_n(parts[0] + begin, length, sum);
        for (std::size_t r = 1; r < parts.size(); ++r) {
            const float* const values = parts[r] + begin;
            for (std::size_t i = 0; i < length; ++i) sum[i] += values[i];
        }
        for (std::size_t i = 0; i < length; ++i) to[begin + i] = factor * sum[i];
    });
}

} // namespace onebit
