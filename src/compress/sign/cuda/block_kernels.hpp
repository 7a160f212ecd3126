// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "compress/sign/arithmetic.hpp"
#include "compress/sign/cuda/kernels.hpp"
#include "core/host_device.hpp"
#include "numeric/cuda/thread_block.hpp"

/// What the kernels do, thread by thread (numeric/cuda/thread_block.hpp). A vote of a warp is a word of signs. The
/// corrected values also go to shared memory, where one warp adds them up, lane by lane in the order of the elements,
/// as every CPU does.
namespace onebit::cuda {

/// Ranks whose words, and blocks whose sums, are loaded together.
inline constexpr unsigned kRankBatch = 8;
inline constexpr unsigned kSumBatch = 8;

// As numeric/cuda/thread_block.hpp wants them.
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const EncodeArguments& arguments) {
    return arguments.to.slice.blocks();
}
inline std::size_t blocks_of(const AverageEncodeArguments& arguments) {
    return arguments.to.slice.blocks();
}
inline std::size_t blocks_of(const SealArguments& /*arguments*/) {
    return 1;
}
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const DecodeArguments& arguments) {
    return arguments.slice.blocks();
}
ONEBIT_HOST_DEVICE inline std::size_t blocks_of(const FirstNonfiniteScaleArguments& arguments) {
    return ceil_divide(arguments.slice.blocks(), kThreads); // a thread for each scale
}
/// So many encoders on a multiprocessor have at least 64 KiB of floats on their way from memory.
inline constexpr unsigned kResidentEncoders = 4;
template <>
inline constexpr unsigned kResidentBlocks<Rows<EncodeArguments>> = kResidentEncoders;
template <>
inline constexpr unsigned kResidentBlocks<AverageEncodeArguments> = kResidentEncoders;

/// magnitude where the word's highest bit is 1, -magnitude where it is 0.
ONEBIT_DEVICE inline float signed_by(std::uint32_t word, float magnitude) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) ^ (~word & 0x80000000U));
}

// A warp's 16 words of signs or of a mask are kept one to a lane: lane g has the word of group g.

/// Which of the block's words is this lane's; kNoWord for the other lanes, and past the block's end.
constexpr unsigned kNoWord = ~0U;
template <typename Thread>
ONEBIT_DEVICE unsigned word_of(const Thread& thread, const Share& share) {
    const unsigned index = thread.warp() * kGroups + thread.lane();
    return thread.lane() < kGroups && index < ceil_divide(share.count, kWordElements) ? index : kNoWord;
}

/// This lane's word of a block whose words begin here.
template <typename Thread>
ONEBIT_DEVICE std::uint32_t load_word(const Thread& thread, const Share& share, const std::uint32_t* words) {
    const unsigned index = word_of(thread, share);
    return index != kNoWord ? words[index] : 0;
}

/// The bit of the thread's element in a group, where each lane has loaded its word. All lanes must call it together.
template <typename Thread>
ONEBIT_DEVICE bool bit_at(const Thread& thread, std::uint32_t word, unsigned group) {
    return (thread.shuffle(word, group) >> thread.lane() & 1) != 0;
}

/// The same as a sign: magnitude where the bit is 1, -magnitude where it is 0.
template <typename Thread>
ONEBIT_DEVICE float signed_at(const Thread& thread, std::uint32_t word, unsigned group, float magnitude) {
    return signed_by(thread.shuffle(word, group) << (kLanes - 1 - thread.lane()), magnitude);
}

/// Adds up what the thread block has left in `values` (zeros behind the block's end) with the 32 threads of one warp.
/// Lane 0 has the result.
template <typename Real, typename Thread>
ONEBIT_DEVICE Real total_of(const Thread& thread, const float* values, onebit_scale_t scale) {
    Real sum = 0;
#pragma unroll 32
    for (unsigned i = thread.lane(); i < kBlockElements; i += kLanes) {
        sum = rounded::add(sum, addend_of<Real>(values[i], scale));
    }
#pragma unroll
    for (unsigned half = kLanes / 2; half > 0; half /= 2) sum = rounded::add(sum, thread.shuffle_down(sum, half));
    return sum;
}

/// Turns the sum of what the thread block has left in `values` into the block's scale; or leaves the sum to seal.
template <typename Thread>
ONEBIT_DEVICE void finish_block(const Thread& thread, const Encoding& to, const Block& block, const float* values) {
    const float float_sum = thread.shuffle(total_of<float>(thread, values, to.scale), 0);
    const double sum = is_trusted(float_sum) ? float_sum : total_of<double>(thread, values, to.scale);
    if (thread.lane() != 0) return;
    if (to.group == ONEBIT_GROUP_BUFFER) {
        to.error.sums[block.index] = sum;
        return;
    }
    const std::size_t elements = to.error.mask == nullptr ? block.count() : to.error.counts[block.index];
    const float scale = scale_for(sum, elements, to.scale);
    to.error.scales[block.index] = scale;
    to.message[scale_word(to.group, block.chunk, block.index)] = std::bit_cast<std::uint32_t>(scale);
}

/// Writes the thread's values plus error to the error's buffer and to shared memory. Returns the lane's word of signs.
/// kAll: the block is full, and all its elements take part, so that no check is needed.
template <bool kAll, typename Thread>
ONEBIT_DEVICE std::uint32_t correct(const Thread& thread, const Encoding& to, const Share& share,
                                    const float (&values)[kGroups], const float (&old)[kGroups], float old_scale,
                                    std::uint32_t valid, Scratch& scratch) {
    const bool masked = !kAll && to.error.mask != nullptr;
    float* const corrected = to.error.corrected + share.begin;
    std::uint32_t signs = 0;
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        const bool here = kAll || share.has(g);
        const bool takes_part = !masked || bit_at(thread, valid, g);
        const float c = takes_part && here ? rounded::add(values[g], error_of(old[g], old_scale)) : 0;
        if (here) corrected[share.at(g)] = c;
        scratch.values[share.at(g)] = c;
        const std::uint32_t word = thread.ballot(here && c >= 0);
        if (thread.lane() == g) signs = word;
    }
    return signs;
}

/// The frame of all encoders; `form(block, share, values)` gives the thread's values.
template <typename Thread, typename Form>
ONEBIT_DEVICE void encode_block(const Thread& thread, const Encoding& to, const Form& form, Scratch& scratch) {
    const Block block = {to.slice.chunk, to.slice.first_block + thread.block()};
    const Share share = share_of(thread, block);
    const float old_scale = to.error.before_scales[to.group == ONEBIT_GROUP_BLOCK ? block.index : 0];
    float old[kGroups];
    load(share, to.error.before, old);
    const bool masked = to.error.mask != nullptr;
    const std::uint32_t valid =
        masked ? load_word(thread, share, to.error.mask + share.begin / kWordElements) : std::uint32_t{0};
    float values[kGroups];
    form(block, share, values);

    const bool all = !masked && share.count == kBlockElements;
    const std::uint32_t signs = all ? correct<true>(thread, to, share, values, old, old_scale, valid, scratch)
                                    : correct<false>(thread, to, share, values, old, old_scale, valid, scratch);
    if (const unsigned index = word_of(thread, share); index != kNoWord) {
        to.message[sign_word(to.group, block.chunk, block.index) + index] = signs;
    }
    thread.sync(); // all values are there, and no thread still reads what finish_block will overwrite
    if (thread.warp() == 0) finish_block(thread, to, block, scratch.values);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const EncodeArguments& arguments, Scratch& scratch) {
    const auto form = [&](const Block&, const Share& share, float(&values)[kGroups]) {
        load(share, arguments.values, values);
    };
    encode_block(thread, arguments.to, form, scratch);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const AverageEncodeArguments& arguments, Scratch& scratch) {
    const auto form = [&](const Block& block, const Share& share, float(&values)[kGroups]) {
        const std::size_t signs_at = sign_word(arguments.to.group, block.chunk, block.index);
        const std::size_t scale_at = scale_word(arguments.to.group, block.chunk, block.index);
#pragma unroll
        for (unsigned g = 0; g < kGroups; ++g) values[g] = 0;
        for (std::size_t first = 0; first < arguments.ranks; first += kRankBatch) {
            // Each step for the whole batch, so that its loads are under way together.
            const std::uint32_t* messages[kRankBatch];
            std::uint32_t signs[kRankBatch];
            std::uint32_t scales[kRankBatch];
#pragma unroll
            for (unsigned r = 0; r < kRankBatch; ++r) {
                messages[r] = first + r < arguments.ranks ? arguments.messages[first + r] : nullptr;
            }
#pragma unroll
            for (unsigned r = 0; r < kRankBatch; ++r) {
                signs[r] = messages[r] != nullptr ? load_word(thread, share, messages[r] + signs_at) : 0;
                scales[r] = messages[r] != nullptr ? messages[r][scale_at] : 0;
            }
#pragma unroll
            for (unsigned r = 0; r < kRankBatch; ++r) {
                if (messages[r] == nullptr) break;
                const float magnitude = rounded::multiply(std::bit_cast<float>(scales[r]), arguments.share);
#pragma unroll
                for (unsigned g = 0; g < kGroups; ++g) {
                    values[g] = rounded::add(values[g], signed_at(thread, signs[r], g, magnitude));
                }
            }
        }
    };
    encode_block(thread, arguments.to, form, scratch);
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const SealArguments& arguments, Scratch& scratch) {
    static_assert(kTensorLanes == kThreads);
    const std::size_t self = thread.warp() * kLanes + thread.lane();
    double sum = 0;
    for (std::size_t first = self; first < arguments.blocks; first += kSumBatch * kThreads) {
        double sums[kSumBatch];
#pragma unroll
        for (unsigned k = 0; k < kSumBatch; ++k) {
            const std::size_t i = first + k * kThreads;
            sums[k] = i < arguments.blocks ? arguments.sums[i] : 0;
        }
#pragma unroll
        for (unsigned k = 0; k < kSumBatch; ++k) sum = rounded::add(sum, sums[k]);
    }
    scratch.sums[self] = sum;
    thread.sync();
    for (std::size_t half = kThreads / 2; half > 0; half /= 2) {
        if (self < half) scratch.sums[self] = rounded::add(scratch.sums[self], scratch.sums[self + half]);
        thread.sync();
    }
    const float scale = scale_for(scratch.sums[0], arguments.elements, arguments.scale);
    if (self == 0) arguments.scales[0] = scale;
    for (std::size_t j = self; j < arguments.messages; j += kThreads) {
        *arguments.trailers[j] = std::bit_cast<std::uint32_t>(scale);
    }
}

/// The thread's elements of a block. kAll: as above.
template <bool kAll, typename Thread>
ONEBIT_DEVICE void expand(const Thread& thread, const Share& share, std::uint32_t signs, float scale, bool masked,
                          std::uint32_t valid, float* values) {
#pragma unroll
    for (unsigned g = 0; g < kGroups; ++g) {
        const bool takes_part = kAll || !masked || bit_at(thread, valid, g);
        const float value = signed_at(thread, signs, g, scale);
        if (kAll || share.has(g)) values[share.at(g)] = takes_part ? value : 0;
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const DecodeArguments& arguments, Scratch& /*scratch*/) {
    const Block block = {arguments.slice.chunk, arguments.slice.first_block + thread.block()};
    const Share share = share_of(thread, block);
    const std::uint32_t* const message = arguments.message;
    const std::uint32_t signs =
        load_word(thread, share, message + sign_word(arguments.group, block.chunk, block.index));
    const bool masked = arguments.mask != nullptr;
    const std::uint32_t valid =
        masked ? load_word(thread, share, arguments.mask + share.begin / kWordElements) : std::uint32_t{0};
    const auto scale = std::bit_cast<float>(message[scale_word(arguments.group, block.chunk, block.index)]);
    float* const values = arguments.values + share.begin;
    if (!masked && share.count == kBlockElements) {
        expand<true>(thread, share, signs, scale, masked, valid, values);
    } else {
        expand<false>(thread, share, signs, scale, masked, valid, values);
    }
}

template <typename Thread>
ONEBIT_DEVICE void run(const Thread& thread, const FirstNonfiniteScaleArguments& arguments, Scratch& /*scratch*/) {
    const Slice& slice = arguments.slice;
    const std::size_t block =
        slice.first_block + std::size_t{thread.block()} * kThreads + thread.warp() * kLanes + thread.lane();
    if (block >= slice.end_block) return;
    const std::size_t at = scale_word(arguments.group, slice.chunk, block);
    if (!is_within(arguments.message[at], FLT_MAX)) {
        thread.lower(arguments.first, slice.chunk.begin + block * kBlockElements);
    }
}

} // namespace onebit::cuda
