// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels on plain values, element by element. What every other version is compared with, bit for bit; also what
// runs where no vector instructions are known.

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "numeric/halves.hpp"
#include "numeric/kernels.hpp"
#include "numeric/mean.hpp"

namespace onebit {
namespace {

bool all_within(const float* values, std::size_t count, float limit) {
    for (std::size_t i = 0; i < count; ++i) {
        if (!(std::fabs(values[i]) <= limit)) return false;
    }
    return true;
}

bool copy(const float* values, std::size_t count, Stores /*stores*/, float* to) {
    std::copy_n(values, count, to);
    return all_within(values, count, FLT_MAX);
}

void mean(const float* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
          Stores /*stores*/, float* to, Stores /*also_stores*/, float* also) {
    for (std::size_t i = 0; i < count; ++i) to[i] = also[i] = mean_of(parts, part_count, first + i, share);
}

// ---- 16-bit formats ----

template <typename Format>
void widen(const std::uint16_t* values, std::size_t count, float* to) {
    std::transform(values, values + count, to, Format::widened);
}
constexpr auto widen_float16 = widen<Float16>;
constexpr auto widen_bfloat16 = widen<BrainFloat16>;

template <typename Format>
bool narrow(const float* values, std::size_t count, std::uint16_t* to) {
    std::transform(values, values + count, to, Format::narrowed);
    return all_within(values, count, Format::kLimit);
}
constexpr auto narrow_float16 = narrow<Float16>;
constexpr auto narrow_bfloat16 = narrow<BrainFloat16>;

template <typename Format>
void mean_of_halves(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                    std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = mean_of(part_count, share, [&](std::size_t p) { return Format::widened(parts[p][first + i]); });
    }
}
constexpr auto mean_float16 = mean_of_halves<Float16>;
constexpr auto mean_bfloat16 = mean_of_halves<BrainFloat16>;

template <typename Format>
void mean_in_halves(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                    std::size_t count, Stores /*stores*/, std::uint16_t* to, Stores /*also_stores*/,
                    std::uint16_t* also) {
    for (std::size_t i = 0; i < count; ++i) {
        float mean = 0;
        mean_of_halves<Format>(parts, part_count, first + i, share, 1, &mean);
        to[i] = also[i] = narrowed_or_infinite<Format>(mean);
    }
}
constexpr auto mean_in_float16 = mean_in_halves<Float16>;
constexpr auto mean_in_bfloat16 = mean_in_halves<BrainFloat16>;

bool halves_within(const std::uint16_t* values, std::size_t count, std::uint16_t most) {
    return std::all_of(values, values + count, [=](std::uint16_t value) { return (value & 0x7fffU) <= most; });
}

bool copy_halves(const std::uint16_t* values, std::size_t count, std::uint16_t most, Stores /*stores*/,
                 std::uint16_t* to) {
    std::copy_n(values, count, to);
    return halves_within(values, count, most);
}

} // namespace

const NumericKernels& reference_numeric_kernels() {
    static constexpr NumericKernels kKernels = {
        "reference",
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) kernel,
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    };
    return kKernels;
}

} // namespace onebit
