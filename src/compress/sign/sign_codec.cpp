// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sign/sign_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "compress/sign/arithmetic.hpp"
#include "compress/sign/block_sum.hpp"
#include "core/kernel_tables.hpp"
#include "numeric/kernels.hpp"

namespace onebit {
namespace {

// Words travel as they lie in memory; the wire is little-endian.
static_assert(std::endian::native == std::endian::little);

std::size_t elements_in_block(const Chunk& chunk, std::size_t block) {
    return Block{chunk, block}.count();
}

} // namespace

// ---------------------------------------------------------------------------------------------- SignFeedback ----

SignPlaces::SignPlaces(std::span<const Chunk> chunks, onebit_group_t group) : ErrorPlaces(chunks), group_(group) {
    for (const Chunk& chunk : chunks) {
        first_block_.push_back(blocks_);
        blocks_ += chunk.blocks();
    }
}

SignFeedback::SignFeedback(std::span<const Chunk> chunks, onebit_group_t group)
    : SignPlaces(chunks, group), corrected(elements()), scales(scale_count()), sums(blocks()), valid_counts_(blocks()) {
    count_valid();
}

template <typename Visit>
void SignFeedback::for_each_block(const Visit& visit) const {
    for (const Chunk& chunk : chunks()) {
        for (std::size_t block = 0; block < chunk.blocks(); ++block) visit(chunk, block);
    }
}

void SignFeedback::reset() {
    corrected.fill_zero();
    scales.fill_zero();
}

template <typename IndexOf>
void SignFeedback::form_error(const IndexOf& index_of, float* error) const {
    for_each_block([&](const Chunk& chunk, std::size_t block) {
        const float scale = scales[scale_index(chunk, block)];
        const float* const from = corrected.data() + element_index(chunk, block);
        float* const to = error + index_of(chunk, block);
        const std::uint32_t* mask = valid(chunk, block);
        for (std::size_t i = 0; i < elements_in_block(chunk, block); ++i) {
            to[i] = takes_part(mask, i) ? error_of(from[i], scale) : 0.0F;
        }
    });
}

template <typename IndexOf>
void SignFeedback::take_error(const IndexOf& index_of, const float* error) {
    for_each_block([&](const Chunk& chunk, std::size_t block) {
        const float* const from = error + index_of(chunk, block);
        float* const to = corrected.data() + element_index(chunk, block);
        const std::uint32_t* mask = valid(chunk, block);
        for (std::size_t i = 0; i < elements_in_block(chunk, block); ++i) {
            to[i] = takes_part(mask, i) ? from[i] : 0.0F;
        }
    });
    scales.fill_zero(); // corrected - 0 * sgn(corrected) is the error itself
}

void SignFeedback::get_error(float* error) const {
    form_error([this](const Chunk& chunk, std::size_t block) { return packed_index(chunk, block); }, error);
}

void SignFeedback::set_error(const float* error) {
    take_error([this](const Chunk& chunk, std::size_t block) { return packed_index(chunk, block); }, error);
}

void SignFeedback::set_mask(std::span<const std::uint32_t> mask) {
    const auto in_place = [this](const Chunk& chunk, std::size_t block) { return element_index(chunk, block); };
    form_error(in_place, corrected.data()); // element by element
    mask_ = mask;
    take_error(in_place, corrected.data());
    count_valid();
}

void SignFeedback::count_valid() {
    valid_count_ = 0;
    for_each_block([&](const Chunk& chunk, std::size_t block) {
        std::size_t count = elements_in_block(chunk, block);
        if (const std::uint32_t* words = valid(chunk, block)) {
            const std::size_t rest = count % kWordElements;
            const std::size_t whole = count / kWordElements;
            count = rest == 0 ? 0 : static_cast<std::size_t>(std::popcount(words[whole] & ((1U << rest) - 1)));
            for (std::size_t w = 0; w < whole; ++w) count += static_cast<std::size_t>(std::popcount(words[w]));
        }
        valid_counts_[block_index(chunk, block)] = static_cast<std::uint32_t>(count);
        valid_count_ += count;
    });
}

// ---------------------------------------------------------------------------------------------- SignMessages ----

std::size_t SignMessages::message_words(const Chunk& chunk) const {
    return sign_word(group_, chunk, chunk.blocks()) + trailer_of(chunk).count;
}

WordRange SignMessages::words_of(const Slice& slice) const {
    const std::size_t begin = sign_word(group_, slice.chunk, slice.first_block);
    return {begin, sign_word(group_, slice.chunk, slice.end_block) - begin};
}

WordRange SignMessages::trailer_of(const Chunk& chunk) const {
    const bool has_one = group_ == ONEBIT_GROUP_BUFFER && chunk.count > 0;
    return {sign_word(group_, chunk, chunk.blocks()), has_one ? std::size_t{1} : 0};
}

// ------------------------------------------------------------------------------------------------- SignCodec ----

std::unique_ptr<Feedback> SignCodec::make_feedback(std::span<const Chunk> chunks) const {
    return std::make_unique<SignFeedback>(chunks, group_);
}

void SignCodec::encode(const ValueSource& values, const Feedback& error_before, Feedback& error_after,
                       std::span<const SliceToEncode> slices) const {
    const auto& before = static_cast<const SignFeedback&>(error_before);
    auto& after = static_cast<SignFeedback&>(error_after);
    for (const SliceToEncode& slice : slices) encode_slice(values, before, after, slice);
}

void SignCodec::encode_slice(const ValueSource& values, const SignFeedback& before, SignFeedback& after,
                             const SliceToEncode& encoded) const {
    const Slice& slice = encoded.slice; // no structured bindings: clang 14 lets no lambda capture them
    const std::uint32_t* const last = encoded.last;
    std::uint32_t* const message = encoded.message;
    const Stores stores = stores_of(before, after);
    const Chunk& chunk = slice.chunk;
    encode_blocks(slice, threads_, stores, [&](const Block& whole) {
        alignas(64) float scratch[kBlockElements];
        const std::size_t block = whole.index;
        const BlockValues from = values.read(whole, scratch);
        const std::size_t at = before.element_index(chunk, block);
        const float old_scale = before.scales[before.scale_index(chunk, block)];
        const std::uint32_t* const valid = before.valid(chunk, block);
        const std::size_t count = elements_in_block(chunk, block);
        const std::size_t first_word = sign_word(group_, chunk, block);
        float sum = 0;
        if (from.blend) {
            sum = kernels_.blend_encode(from.data, *from.blend, last + first_word,
                                        std::bit_cast<float>(last[scale_word(group_, chunk, block)]),
                                        before.corrected.data() + at, old_scale, after.corrected.data() + at, stores,
                                        valid, count, scale_, message + first_word);
        } else if (from.mean) {
            sum = kernels_.mean_encode(from.mean->parts.data(), from.mean->parts.size(), from.mean->share,
                                       before.corrected.data() + at, old_scale, after.corrected.data() + at, stores,
                                       valid, count, scale_, message + first_word);
        } else {
            sum = kernels_.encode(from.data, before.corrected.data() + at, old_scale, after.corrected.data() + at,
                                  stores, valid, count, scale_, message + first_word);
        }
        finish_block(after, chunk, block, sum, message);
    });
}

void SignCodec::average_encode(std::span<const std::uint32_t* const> messages, float share,
                               const Feedback& error_before, Feedback& error_after, const Slice& slice,
                               std::uint32_t* message) const {
    const auto& before = static_cast<const SignFeedback&>(error_before);
    auto& after = static_cast<SignFeedback&>(error_after);
    const Stores stores = stores_of(error_before, after);
    const Chunk& chunk = slice.chunk;
    encode_blocks(slice, threads_, stores, [&](const Block& whole) {
        const std::size_t block = whole.index;
        const std::size_t first_word = sign_word(group_, chunk, block);
        const std::size_t at = before.element_index(chunk, block);
        const float sum = kernels_.average_encode(
            messages.data(), messages.size(), first_word, scale_word(group_, chunk, block), share,
            before.corrected.data() + at, before.scales[before.scale_index(chunk, block)], after.corrected.data() + at,
            stores, before.valid(chunk, block), elements_in_block(chunk, block), scale_, message + first_word);
        finish_block(after, chunk, block, sum, message);
    });
}

void SignCodec::average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                        const ValueSink& values) const {
    decode_tiles(slice, threads_, values, [&](const Tile& tile, float* place) {
        const std::size_t index = tile.block.index;
        kernels_.average(messages.data(), messages.size(),
                         sign_word(group_, slice.chunk, index) + tile.in_block / kWordElements,
                         scale_word(group_, slice.chunk, index), share, tile.count, values.stores(), place);
    });
}

bool SignCodec::encoded_finite(const Feedback& error_after, const Slice& slice, const std::uint32_t* message) const {
    if (group_ == ONEBIT_GROUP_BLOCK) return is_finite({slice, message});
    const auto& after = static_cast<const SignFeedback&>(error_after);
    const std::size_t first = after.block_index(slice.chunk, slice.first_block);
    return std::ranges::all_of(after.sums.view().subspan(first, slice.blocks()),
                               [](double sum) { return std::isfinite(sum); });
}

void SignCodec::finish_block(SignFeedback& after, const Chunk& chunk, std::size_t block, float float_sum,
                             std::uint32_t* message) const {
    double sum = float_sum;
    if (!is_trusted(float_sum)) {
        sum = sum_in_double(after.corrected.data() + after.element_index(chunk, block), elements_in_block(chunk, block),
                            scale_);
    }
    if (group_ == ONEBIT_GROUP_BUFFER) {
        after.sums[after.block_index(chunk, block)] = sum; // the scale waits for all blocks: seal
        return;
    }
    const float scale = scale_for(sum, after.valid_count(chunk, block), scale_);
    after.scales[after.scale_index(chunk, block)] = scale;
    message[scale_word(group_, chunk, block)] = std::bit_cast<std::uint32_t>(scale);
}

void SignCodec::seal(Feedback& error_after, std::span<std::uint32_t* const> messages) const {
    if (group_ == ONEBIT_GROUP_BLOCK) return;
    auto& after = static_cast<SignFeedback&>(error_after);
    const std::span<const double> sums = after.sums.view();
    const double sum = sum_in_lanes<kTensorLanes>(sums.size(), [&](std::size_t i) { return sums[i]; });
    const float scale = scale_for(sum, after.valid_count(), scale_);
    after.scales[0] = scale;
    for (std::size_t j = 0; j < messages.size(); ++j) {
        const Chunk& chunk = after.chunks()[j];
        if (chunk.count > 0) messages[j][trailer_of(chunk).begin] = std::bit_cast<std::uint32_t>(scale);
    }
}

void SignCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                       const ValueSink& values) const {
    for (const EncodedSlice& slice : slices) decode_slice(slice, mask, values);
}

void SignCodec::decode_slice(const EncodedSlice& encoded, std::span<const std::uint32_t> mask,
                             const ValueSink& values) const {
    const std::uint32_t* const message = encoded.message;
    const Chunk& chunk = encoded.slice.chunk;
    decode_tiles(encoded.slice, threads_, values, [&](const Tile& tile, float* place) {
        const std::size_t index = tile.block.index;
        kernels_.decode(message + sign_word(group_, chunk, index) + tile.in_block / kWordElements,
                        std::bit_cast<float>(message[scale_word(group_, chunk, index)]), mask_at(mask, tile.begin()),
                        tile.count, values.stores(), place);
    });
}

void SignCodec::decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                             float* values) const {
    kernels_.decode(message + sign_word(group_, block.chunk, block.index),
                    std::bit_cast<float>(message[scale_word(group_, block.chunk, block.index)]),
                    mask_at(mask, block.begin()), block.count(), Stores::kCached, values);
}

std::size_t SignCodec::first_overflowed(std::span<const EncodedSlice> slices) const {
    const auto overflowed = [this](const EncodedSlice& slice) { return !is_finite(slice); };
    return static_cast<std::size_t>(std::ranges::find_if(slices, overflowed) - slices.begin());
}

bool SignCodec::is_finite(const EncodedSlice& encoded) const {
    const auto& [slice, message] = encoded;
    for (std::size_t block = slice.first_block; block < slice.end_block; ++block) {
        if (!std::isfinite(std::bit_cast<float>(message[scale_word(group_, slice.chunk, block)]))) return false;
    }
    return true;
}

// -------------------------------------------------------------------------------------------------- creation ----

Status make_sign_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    const SignKernels* const kernels = table_named(available_sign_kernels(), numeric_kernels(config.kernels).name);
    *codec = std::make_unique<SignCodec>(kernels != nullptr ? *kernels : reference_sign_kernels(), config);
    return {};
}

} // namespace onebit
