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

SignFeedback::SignFeedback(std::span<const Chunk> chunks, onebit_datatype_t type, const NumericKernels& kernels)
    : SignPlaces(chunks, ONEBIT_GROUP_BLOCK), valid_counts_(blocks()) {
    narrow_.emplace(chunks, type, kernels);
    count_valid();
}

template <typename Visit>
void SignFeedback::for_each_block(const Visit& visit) const {
    for (const Chunk& chunk : chunks()) {
        for (std::size_t block = 0; block < chunk.blocks(); ++block) visit(chunk, block);
    }
}

void SignFeedback::reset() {
    if (narrow_) return narrow_->reset();
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
    if (narrow_) return narrow_->get_error(error);
    form_error([this](const Chunk& chunk, std::size_t block) { return packed_index(chunk, block); }, error);
}

void SignFeedback::set_error(const float* error) {
    if (narrow_) return narrow_->set_error(error);
    take_error([this](const Chunk& chunk, std::size_t block) { return packed_index(chunk, block); }, error);
}

void SignFeedback::set_mask(std::span<const std::uint32_t> mask) {
    if (narrow_) {
        narrow_->set_mask(mask);
        mask_ = mask;
    } else {
        const auto in_place = [this](const Chunk& chunk, std::size_t block) { return element_index(chunk, block); };
        form_error(in_place, corrected.data()); // element by element
        mask_ = mask;
        take_error(in_place, corrected.data());
    }
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
    if (error_type_ != ONEBIT_FLOAT32) {
        return std::make_unique<SignFeedback>(chunks, error_type_, numeric_kernels(kernels_.name));
    }
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
    encode_blocks(slice, threads_, stores, [&](const Block& block) {
        alignas(64) float scratch[kBlockElements];
        const BlockValues from = values.read(block, scratch);
        const std::uint32_t* const valid = before.valid(block.chunk, block.index);
        const std::size_t first_word = sign_word(group_, block.chunk, block.index);
        std::uint32_t* const bits = message + first_word;
        encode_block(block, before, after, message, [&](const float* error, float old_scale, float* corrected) {
            if (from.blend) {
                const std::uint32_t last_scale = last[scale_word(group_, block.chunk, block.index)];
                return kernels_.blend_encode(from.data, *from.blend, last + first_word,
                                             std::bit_cast<float>(last_scale), error, old_scale, corrected, stores,
                                             valid, block.count(), scale_, bits);
            }
            if (from.mean) {
                return kernels_.mean_encode(from.mean->parts.data(), from.mean->parts.size(), from.mean->share, error,
                                            old_scale, corrected, stores, valid, block.count(), scale_, bits);
            }
            return kernels_.encode(from.data, error, old_scale, corrected, stores, valid, block.count(), scale_, bits);
        });
    });
}

void SignCodec::average_encode(std::span<const std::uint32_t* const> messages, float share,
                               const Feedback& error_before, Feedback& error_after, const Slice& slice,
                               std::uint32_t* message) const {
    const auto& before = static_cast<const SignFeedback&>(error_before);
    auto& after = static_cast<SignFeedback&>(error_after);
    const Stores stores = stores_of(error_before, after);
    encode_blocks(slice, threads_, stores, [&](const Block& block) {
        const std::size_t first_word = sign_word(group_, block.chunk, block.index);
        encode_block(block, before, after, message, [&](const float* error, float old_scale, float* corrected) {
            return kernels_.average_encode(messages.data(), messages.size(), first_word,
                                           scale_word(group_, block.chunk, block.index), share, error, old_scale,
                                           corrected, stores, before.valid(block.chunk, block.index), block.count(),
                                           scale_, message + first_word);
        });
    });
}

/// `kernel(error, old_scale, corrected)`: encodes the block, and returns its sum.
template <typename Kernel>
void SignCodec::encode_block(const Block& block, const SignFeedback& before, SignFeedback& after,
                             std::uint32_t* message, const Kernel& kernel) const {
    if (after.is_narrow()) return encode_narrow(block, before, after, message, kernel);
    const std::size_t at = before.element_index(block.chunk, block.index);
    float* const corrected = after.corrected.data() + at;
    const float old_scale = before.scales[before.scale_index(block.chunk, block.index)];
    const float sum = kernel(before.corrected.data() + at, old_scale, corrected);
    finish_block(after, block, corrected, sum, message);
}

/// Forms a narrow error at once. Not inline, so that other errors need no room on a small stack.
template <typename Kernel>
[[gnu::noinline]] void SignCodec::encode_narrow(const Block& block, const SignFeedback& before, SignFeedback& after,
                                                std::uint32_t* message, const Kernel& kernel) const {
    const std::size_t at = before.narrow().element_index(block.chunk, block.index);
    alignas(64) float error[kBlockElements];
    before.narrow().read(at, block.count(), error);
    const float sum = kernel(error, 0.0F, error);
    const float scale = finish_block(after, block, error, sum, message);
    const std::uint32_t* const valid = before.valid(block.chunk, block.index);
    for (std::size_t i = 0; i < block.count(); ++i) error[i] = takes_part(valid, i) ? error_of(error[i], scale) : 0.0F;
    after.narrow().write(at, block.count(), error);
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

/// `corrected`: the block's. Returns the block's scale; 0 while the scale waits for other blocks.
float SignCodec::finish_block(SignFeedback& after, const Block& block, const float* corrected, float float_sum,
                              std::uint32_t* message) const {
    const Chunk& chunk = block.chunk;
    double sum = float_sum;
    if (!is_trusted(float_sum)) sum = sum_in_double(corrected, block.count(), scale_);
    if (group_ == ONEBIT_GROUP_BUFFER) {
        after.sums[after.block_index(chunk, block.index)] = sum; // the scale waits for all blocks: seal
        return 0;
    }
    const float scale = scale_for(sum, after.valid_count(chunk, block.index), scale_);
    if (!after.is_narrow()) after.scales[after.scale_index(chunk, block.index)] = scale;
    message[scale_word(group_, chunk, block.index)] = std::bit_cast<std::uint32_t>(scale);
    return scale;
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
    const char* const name = numeric_kernels(config.kernels).name;
    *codec = std::make_unique<SignCodec>(table_or_reference(available_sign_kernels(), name), config);
    return {};
}

} // namespace onebit
