// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "compress/codec.hpp"
#include "core/partition.hpp"
#include "numeric/elements.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

/// Messages that are the values themselves, in the type of the caller's buffers, so that exact exchanges use the code
/// of encoded ones. There is no error. A mean of 16-bit values is rounded once, when it becomes a message. On the host.
/// Callers check values for NaN and infinity before, so messages need no check.
class ExactCodec final : public Codec {
  public:
    /// Values come from buffers of this type, or can be held by such buffers.
    ExactCodec(const NumericKernels& kernels, onebit_datatype_t type, unsigned threads)
        : name_(kernels.name), elements_(type, kernels), threads_(threads) {}

    const char* kernels() const override { return name_; }
    std::size_t message_words(const Chunk& chunk) const override { return words(chunk.count); }
    WordRange words_of(const Slice& slice) const override {
        const std::size_t first = slice.begin() - slice.chunk.begin;
        return {words(first), words(first + slice.count()) - words(first)};
    }
    WordRange trailer_of(const Chunk& chunk) const override { return {message_words(chunk), 0}; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    /// A mean of finite values is finite, also where their sum would overflow (numeric/mean.hpp).
    void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                 const ValueSink& values) const override;
    void seal(Feedback&, std::span<std::uint32_t* const>) const override {}
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override { return slices.size(); }

  private:
    std::size_t words(std::size_t elements) const {
        return ceil_divide(elements * elements_.bytes(), sizeof(std::uint32_t));
    }
    /// A block's values in its chunk's message.
    const void* in_message(const std::uint32_t* message, const Block& block) const {
        return elements_.at(static_cast<const void*>(message), block.index * kBlockElements);
    }
    void* in_message(std::uint32_t* message, const Block& block) const {
        return elements_.at(static_cast<void*>(message), block.index * kBlockElements);
    }
    void fill_last_word(void* message, const Block& block) const;

    const char* name_;
    Elements elements_;
    unsigned threads_;
};

} // namespace onebit
