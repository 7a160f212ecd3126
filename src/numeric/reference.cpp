// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels on plain values, element by element. Every other version is compared with this one, bit for bit. It also
// runs where no vector instructions are known.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "numeric/halves.hpp"
#include "numeric/kernels.hpp"
#include "numeric/mean.hpp"
#include "numeric/scaled_bytes.hpp"

namespace onebit {
namespace {

// NOLINTBEGIN(readability-identifier-naming): kernels, whether functions or not, have the names of kernels.def

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

// ---- Bytes, each with a power of two of its 256 ----

/// Calls body(group, begin, end) for each 256 values.
template <typename Body>
void for_each_scaled_group(std::size_t count, const Body& body) {
    for (std::size_t begin = 0; begin < count; begin += kScaledGroup) {
        body(begin / kScaledGroup, begin, std::min(begin + kScaledGroup, count));
    }
}

void narrow_to_bytes(const float* values, std::size_t count, std::int8_t* to, std::uint8_t* exponents) {
    for_each_scaled_group(count, [=](std::size_t group, std::size_t begin, std::size_t end) {
        std::uint32_t largest = 0; // as bits: infinities and NaNs are larger than any number
        for (std::size_t i = begin; i < end; ++i) {
            largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
        }
        exponents[group] = scaled_exponent(largest);
        if (exponents[group] == kNotFinite) {
            std::fill(to + begin, to + end, std::int8_t{0}); // 0 times infinity
        } else {
            const float inverse = inverse_of_exponent(exponents[group]);
            for (std::size_t i = begin; i < end; ++i) to[i] = scaled_byte(values[i], inverse);
        }
    });
}

void widen_bytes(const std::int8_t* values, const std::uint8_t* exponents, std::size_t count, float* to) {
    for_each_scaled_group(count, [=](std::size_t group, std::size_t begin, std::size_t end) {
        const float scale = scale_of_exponent(exponents[group]);
        for (std::size_t i = begin; i < end; ++i) to[i] = static_cast<float>(values[i]) * scale;
    });
}

// NOLINTEND(readability-identifier-naming)

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
