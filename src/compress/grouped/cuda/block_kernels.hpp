// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "compress/grouped/codes.hpp"
#include "compress/grouped/cuda/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "numeric/cuda/thread_block.hpp"
#include "numeric/mean.hpp"

/// What the kernels do, thread by thread (numeric/cuda/thread_block.hpp). A warp's 16 runs of 32 elements are two
/// groups, each with its own scale; lane j has element j of each run. So one warp finds a group's largest magnitude and
/// its Statistics, and nothing goes through shared memory.
namespace onebit::cuda {

/// Runs of a group, and groups of a warp.
inline constexpr unsigned kGroupRuns = kGroupElements / kLanes;
inline constexpr unsigned kWarpGroups = kGroups / kGroupRuns;
/// Scales that a block has, at most.
inline constexpr unsigned kBlockScales = kBlockElements / kGroupElements;

// As numeric/cuda/thread_block.hpp wants them.
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const GroupedEncodeArguments& arguments) {
    return arguments.to.slice.blocks();
}
inline std::size_t blocks_of(const GroupedAverageEncodeArguments& arguments) {
    return arguments.to.slice.blocks();
}
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const GroupedDecodeArguments& arguments) {
    return arguments.slice.blocks();
}
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const FirstNonfiniteGroupArguments& arguments) {
    return ceil_divide(arguments.slice.blocks() * kBlockScales, kThreads); // a thread for each scale
}

/// A thread keeps the codes of one rank and the sums of the ranks before it in registers.
template <>
inline constexpr unsigned kResidentBlocks<GroupedAverageEncodeArguments> = 3;

template <typename Code>
struct CodeTag {
    using Type = Code;
};

/// Calls body(CodeTag of the code that the codec has).
template <typename Body>
ONEBIT_DEVICE void with_code(onebit_codec_t codec, const Body& body) {
    switch (codec) {
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) \
    case constant:                                    \
        body(CodeTag<scalar>());                      \
        break;
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
        default:
            break;
    }
}

/// Where a block's scales and codes are in its chunk's message.
template <typename Code, typename Word>
ONEBIT_DEVICE Word* scales_of(Word* message, const Block& block) {
    return message + grouped_word(Code::kBits, block.chunk, block.index);
}
template <typename Code, typename Word>
ONEBIT_DEVICE Word* codes_of(Word* message, const Block& block) {
    return scales_of<Code>(message, block) + scale_words(block.count());
}

/// Combines the values of the warp's lanes with `add`, as a tree. All lanes get the result.
template <typename Real, typename Thread, typename Add>
ONEBIT_DEVICE Real over_lanes(const Thread& thread, Real value, const Add& add) {
#pragma unroll
    for (unsigned half = kLanes / 2; half > 0; half /= 2) value = add(value, thread.shuffle_down(value, half));
    return thread.shuffle(value, 0);
}

template <typename Thread>
ONEBIT_DEVICE float total(const Thread& thread, float value) {
    return over_lanes(thread, value, [](float a, float b) { return rounded::add(a, b); });
}
template <typename Thread>
ONEBIT_DEVICE std::uint32_t total(const Thread& thread, std::uint32_t value) {
    return over_lanes(thread, value, [](std::uint32_t a, std::uint32_t b) { return a + b; });
}

// Statistics of a group; `largest`: its largest magnitude, `c`: the thread's elements of it.

template <typename Thread>
ONEBIT_DEVICE void find(const Thread& thread, const float* c, float largest, Squares* squares) {
    const float power = Squares::power_before(largest);
    *squares = {};
#pragma unroll
    for (unsigned r = 0; r < kGroupRuns; ++r) {
        const float shifted = rounded::multiply(c[r], power);
        squares->sum = rounded::add(squares->sum, rounded::multiply(shifted, shifted));
        squares->nonzeros += c[r] != 0 ? 1U : 0U;
    }
    *squares = {total(thread, squares->sum), total(thread, squares->nonzeros)};
}

template <typename Thread>
ONEBIT_DEVICE void find(const Thread& thread, const float* c, float /*largest*/, SignedSums* sums) {
    *sums = {};
#pragma unroll
    for (unsigned r = 0; r < kGroupRuns; ++r) {
        const float part = rounded::multiply(c[r], MagnitudeSum::kPart);
        sums->positive.sum = rounded::add(sums->positive.sum, part > 0 ? part : 0);
        sums->negative.sum = rounded::add(sums->negative.sum, part < 0 ? -part : 0);
        sums->positive.count += c[r] > 0 ? 1U : 0U;
        sums->negative.count += c[r] < 0 ? 1U : 0U;
    }
    *sums = {{total(thread, sums->positive.sum), total(thread, sums->positive.count)},
             {total(thread, sums->negative.sum), total(thread, sums->negative.count)}};
}

template <typename Code, typename Thread>
ONEBIT_DEVICE float scale_of(const Thread& thread, const float* c, float largest) {
    if constexpr (requires { typename Code::Statistics; }) {
        typename Code::Statistics statistics;
        find(thread, c, largest, &statistics);
        return Code::scale_of(largest, statistics);
    } else {
        return Code::scale_of(largest);
    }
}

/// Word `lane` of a run whose element j has this code in lane j (code_place); meaningless in lanes from kBits on.
template <unsigned kBits, typename Thread>
ONEBIT_DEVICE std::uint32_t word_of_run(const Thread& thread, std::uint32_t code) {
    if constexpr (kBits == 1) return thread.ballot(code != 0);
    constexpr unsigned kPart = kBits < 8 ? 8 : kBits; // bits that are put together first: a byte of short codes
    std::uint32_t part = code;
#pragma unroll
    for (unsigned j = 1; j < kPart / kBits; ++j) part |= thread.shuffle_down(code, j * 4 * kBits) << (j * kBits);
    std::uint32_t word = 0;
#pragma unroll
    for (unsigned k = 0; k < 32 / kPart; ++k) {
        word |= thread.shuffle(part, (32 / kPart * thread.lane() + k) % kLanes) << (k * kPart);
    }
    return word;
}

/// The code of the thread's element of a run with these words.
template <typename Code, typename Thread>
ONEBIT_DEVICE std::uint32_t code_in_run(const Thread& thread, const std::uint32_t* words) {
    const CodePlace place = code_place<Code::kBits>(thread.lane());
    return words[place.word] >> place.shift & ((1U << Code::kBits) - 1);
}

/// Encodes the thread's runs from number `first` on, of one group: codes, scale, and the error that is left.
template <typename Code, typename Thread>
ONEBIT_DEVICE void encode_group(const Thread& thread, const GroupedEncoding& to, const Block& block, const Share& share,
                                const std::uint32_t* valid, unsigned first, const float* c) {
    std::uint32_t largest = 0; // as bits: a NaN is larger than any number
#pragma unroll
    for (unsigned r = 0; r < kGroupRuns; ++r) {
        largest = std::max(largest, std::bit_cast<std::uint32_t>(c[r]) & 0x7fffffffU);
    }
    largest = over_lanes(thread, largest, [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; });
    const auto magnitude = std::bit_cast<float>(largest);
    const bool finite = is_within(largest, FLT_MAX);
    const float scale = finite ? scale_of<Code>(thread, c, magnitude) : magnitude;
    const unsigned run = thread.warp() * kGroups + first;
    if (run * kLanes >= share.count) return; // the whole warp does
    if (thread.lane() == 0) scales_of<Code>(to.message, block)[run / kGroupRuns] = std::bit_cast<std::uint32_t>(scale);

    const float factor = Code::factor_of(scale);
    const Code code_of(scale);
    std::uint32_t* const codes = codes_of<Code>(to.message, block);
    float* const after = to.after + share.begin;
#pragma unroll
    for (unsigned r = 0; r < kGroupRuns; ++r) {
        const std::uint32_t code = finite ? code_of.code(c[r]) : 0;
        const std::uint32_t word = word_of_run<Code::kBits>(thread, code);
        if ((run + r) * kLanes < share.count && thread.lane() < Code::kBits) {
            codes[(run + r) * Code::kBits + thread.lane()] = word;
        }
        if (share.has(first + r)) {
            const float left = finite ? rounded::add(c[r], -Code::value(code, factor)) : c[r];
            after[share.at(first + r)] = onebit::takes_part(valid, share.at(first + r)) ? left : 0;
        }
    }
}

/// Shared by both encoders: corrects and encodes the thread's values.
template <typename Code, typename Thread>
ONEBIT_DEVICE void encode_block(const Thread& thread, const GroupedEncoding& to, const Block& block, const Share& share,
                                const float (&values)[kGroups]) {
    float c[kGroups];
    load(share, to.before, c);
    const std::uint32_t* const valid = to.mask != nullptr ? to.mask + share.begin / kWordElements : nullptr;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        const bool takes_part = share.has(g) && onebit::takes_part(valid, share.at(g));
        c[g] = takes_part ? rounded::add(values[g], c[g]) : 0;
    }
#pragma unroll
    for (unsigned group = 0; group < kWarpGroups; ++group) {
        encode_group<Code>(thread, to, block, share, valid, group * kGroupRuns, c + group * kGroupRuns);
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const GroupedEncodeArguments& arguments, Scratch& /*scratch*/) {
    const GroupedEncoding& to = arguments.to;
    const Block block = {to.slice.chunk, to.slice.first_block + thread.block()};
    const Share share = share_of(thread, block);
    float values[kGroups];
    load(share, arguments.values, values);
    with_code(to.codec,
              [&](auto tag) { encode_block<typename decltype(tag)::Type>(thread, to, block, share, values); });
}

/// Calls body(g, value) for each of the thread's elements, with the value in the message.
template <typename Code, typename Thread, typename Body>
ONEBIT_DEVICE void for_each_value(const Thread& thread, const std::uint32_t* message, const Block& block,
                                  const Share& share, const Body& body) {
    const std::uint32_t* const scales = scales_of<Code>(message, block);
    const std::uint32_t* const codes = codes_of<Code>(message, block);
    std::uint32_t code[kGroups];
    float factor[kWarpGroups];
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        const unsigned run = thread.warp() * kGroups + g;
        code[g] = share.has(g) ? code_in_run<Code>(thread, codes + run * Code::kBits) : 0;
    }
#pragma unroll
    for (unsigned group = 0; group < kWarpGroups; ++group) {
        const unsigned scale = thread.warp() * kWarpGroups + group;
        factor[group] = Code::factor_of(share.has(group * kGroupRuns) ? std::bit_cast<float>(scales[scale]) : 0);
    }
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) body(g, Code::value(code[g], factor[g / kGroupRuns]));
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const GroupedAverageEncodeArguments& arguments, Scratch& /*scratch*/) {
    const GroupedEncoding& to = arguments.to;
    const Block block = {to.slice.chunk, to.slice.first_block + thread.block()};
    const Share share = share_of(thread, block);
    with_code(to.codec, [&](auto tag) {
        using Code = typename decltype(tag)::Type;
        float values[kGroups];
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) values[g] = 0;
        for (std::size_t r = 0; r < arguments.ranks; ++r) {
            for_each_value<Code>(thread, arguments.messages[r], block, share, [&](unsigned g, float value) {
                values[g] = rounded::add(values[g], rounded::multiply(value, arguments.share));
            });
        }
        encode_block<Code>(thread, to, block, share, values);
    });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const GroupedDecodeArguments& arguments, Scratch& /*scratch*/) {
    const Block block = {arguments.slice.chunk, arguments.slice.first_block + thread.block()};
    const Share share = share_of(thread, block);
    const std::uint32_t* const valid =
        arguments.mask != nullptr ? arguments.mask + share.begin / kWordElements : nullptr;
    float* const values = arguments.values + share.begin;
    with_code(arguments.codec, [&](auto tag) {
        using Code = typename decltype(tag)::Type;
        for_each_value<Code>(thread, arguments.message, block, share, [&](unsigned g, float value) {
            if (share.has(g)) values[share.at(g)] = onebit::takes_part(valid, share.at(g)) ? value : 0;
        });
    });
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const FirstNonfiniteGroupArguments& arguments, Scratch& /*scratch*/) {
    const Slice& slice = arguments.slice;
    const std::size_t self = std::size_t{thread.block()} * kThreads + thread.warp() * kLanes + thread.lane();
    const Block block = {slice.chunk, slice.first_block + self / kBlockScales};
    if (block.index >= slice.end_block || self % kBlockScales >= scale_words(block.count())) return;
    with_code(arguments.codec, [&](auto tag) {
        using Code = typename decltype(tag)::Type;
        const std::uint32_t scale = scales_of<Code>(arguments.message, block)[self % kBlockScales];
        if (!is_within(scale, FLT_MAX)) thread.lower(arguments.first, block.begin());
    });
}

} // namespace onebit::cuda
