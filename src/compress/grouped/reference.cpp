// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The grouped codes, element by element, as docs/WIRE_FORMAT.md describes them. Every other version is compared with
// this one, bit for bit. It also runs where no vector instructions are known.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "compress/grouped/codes.hpp"
#include "compress/grouped/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "core/random_bits.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"

namespace onebit {
namespace {

/// The word that holds element i's code, and where in it.
template <typename Code>
CodePlace place_of(std::size_t i) {
    CodePlace place = code_place<Code::kBits>(i % kWordElements);
    place.word += i / kWordElements * Code::kBits;
    return place;
}

/// The code of element i.
template <typename Code>
std::uint32_t read_code(const std::uint32_t* codes, std::size_t i) {
    const CodePlace place = place_of<Code>(i);
    return codes[place.word] >> place.shift & ((1U << Code::kBits) - 1);
}

/// Calls body(group, begin, end) for the elements of each group.
template <typename Body>
void for_each_group(std::size_t count, const Body& body) {
    for (std::size_t g = 0; g < scale_words(count); ++g) {
        body(g, g * kGroupElements, std::min((g + 1) * kGroupElements, count));
    }
}

// Statistics of a group; `largest`: its largest magnitude.

void find(const float (&corrected)[kGroupElements], float largest, Squares* squares) {
    const float power = Squares::power_before(largest);
    float lanes[kLanes] = {};
    for (std::size_t i = 0; i < kGroupElements; ++i) {
        const float shifted = corrected[i] * power;
        lanes[i % kLanes] += shifted * shifted;
    }
    const auto zeros = std::count(corrected, corrected + kGroupElements, 0.0F);
    *squares = {sum_of_lanes(lanes), static_cast<std::uint32_t>(kGroupElements - zeros)};
}

void find(const float (&corrected)[kGroupElements], float /*largest*/, SignedSums* sums) {
    float positive[kLanes] = {}, negative[kLanes] = {};
    for (std::size_t i = 0; i < kGroupElements; ++i) {
        const float part = corrected[i] * MagnitudeSum::kPart;
        positive[i % kLanes] += std::max(part, 0.0F);
        negative[i % kLanes] += std::max(-part, 0.0F);
    }
    const auto positives = std::count_if(corrected, corrected + kGroupElements, [](float c) { return c > 0; });
    const auto negatives = std::count_if(corrected, corrected + kGroupElements, [](float c) { return c < 0; });
    *sums = {{sum_of_lanes(positive), static_cast<std::uint32_t>(positives)},
             {sum_of_lanes(negative), static_cast<std::uint32_t>(negatives)}};
}

template <typename Code>
float scale_of(const float (&corrected)[kGroupElements], float largest) {
    if constexpr (requires { typename Code::Statistics; }) {
        typename Code::Statistics statistics;
        find(corrected, largest, &statistics);
        return Code::scale_of(largest, statistics);
    } else {
        return Code::scale_of(largest);
    }
}

/// code_of(code, i, c): the code of element i, whose value is c.
template <typename Code, typename CodeOf>
void encode_with(const CodeOf& code_of, const float* values, const float* before, float* after,
                 const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    std::fill_n(to.codes, code_words(Code::kBits, count), 0U);
    for_each_group(count, [&](std::size_t g, std::size_t begin, std::size_t end) {
        float corrected[kGroupElements] = {};
        std::uint32_t largest = 0; // as bits: a NaN is larger than any number
        for (std::size_t i = begin; i < end; ++i) {
            const float c = takes_part(valid, i) ? values[i] + before[i] : 0.0F;
            corrected[i - begin] = c;
            largest = std::max(largest, std::bit_cast<std::uint32_t>(c) & 0x7fffffffU);
        }
        if (!is_finite(std::bit_cast<float>(largest))) {
            to.scales[g] = largest;
            std::copy_n(corrected, end - begin, after + begin);
            return;
        }
        const float scale = scale_of<Code>(corrected, std::bit_cast<float>(largest));
        const float factor = Code::factor_of(scale);
        const Code code_with(scale);
        to.scales[g] = std::bit_cast<std::uint32_t>(scale);
        for (std::size_t i = begin; i < ceil_divide(end, kWordElements) * kWordElements; ++i) {
            const float c = corrected[i - begin];
            const std::uint32_t code = code_of(code_with, i, c);
            const CodePlace place = place_of<Code>(i);
            to.codes[place.word] |= code << place.shift;
            if (i < end) after[i] = takes_part(valid, i) ? c - Code::value(code, factor) : 0.0F;
        }
    });
}

template <typename Code>
void encode(const float* values, const float* before, float* after, Stores, const std::uint32_t* valid,
            std::size_t count, const GroupsToWrite& to) {
    const auto code_of = [](const Code& code, std::size_t, float c) { return code.code(c); };
    encode_with<Code>(code_of, values, before, after, valid, count, to);
}

template <typename Code>
void encode_stochastic(const DrawnElements& draws, const float* values, const float* before, float* after, Stores,
                       const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    const auto code_of = [&](const Code& code, std::size_t i, float c) {
        return code.stochastic_code(c, drawn(draws.seed, draws.first + static_cast<std::uint32_t>(i)));
    };
    encode_with<Code>(code_of, values, before, after, valid, count, to);
}

template <typename Code>
constexpr auto stochastic_encoder() {
    if constexpr (kIsInteger<Code>) {
        return encode_stochastic<Code>;
    } else {
        return nullptr;
    }
}

/// Calls body(i, value) for each element, with what its code stands for.
template <typename Code, typename Body>
void for_each_value(const GroupsToRead& from, std::size_t count, const Body& body) {
    for_each_group(count, [&](std::size_t g, std::size_t begin, std::size_t end) {
        const float factor = Code::factor_of(std::bit_cast<float>(from.scales[g]));
        for (std::size_t i = begin; i < end; ++i) body(i, Code::value(read_code<Code>(from.codes, i), factor));
    });
}

template <typename Code>
void add(const GroupsToRead& from, float share, std::size_t count, float* sums) {
    for_each_value<Code>(from, count, [&](std::size_t i, float value) { sums[i] += value * share; });
}

template <typename Code>
void decode(const GroupsToRead& from, const std::uint32_t* valid, std::size_t count, Stores, float* values) {
    for_each_value<Code>(from, count,
                         [&](std::size_t i, float value) { values[i] = takes_part(valid, i) ? value : 0.0F; });
}

} // namespace

const GroupedTable& reference_grouped_kernels() {
    static constexpr GroupedTable kTable = {"reference",
                                            {
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) \
    {constant, scalar::kBits, encode<scalar>, stochastic_encoder<scalar>(), add<scalar>, decode<scalar>},
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
                                            }};
    return kTable;
}

} // namespace onebit
