// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include "compress/codec.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

/// Messages that are the values themselves, 32 bits for each, so that exact exchanges go the ways of encoded ones.
/// There is no error. On the host; takes values from arrays. They are looked at before, so that none has to be looked
/// for in a message.
class ExactCodec final : public Codec {
  public:
    ExactCodec(const std::string& kernels, unsigned threads) : numeric_(numeric_kernels(kernels)), threads_(threads) {}

    const char* kernels() const override { return numeric_.name; }
    std::size_t message_words(const Chunk& chunk) const override { return chunk.count; }
    WordRange words_of(const Slice& slice) const override { return {slice.begin() - slice.chunk.begin, slice.count()}; }
    WordRange trailer_of(const Chunk& chunk) const override { return {chunk.count, 0}; }
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
    const NumericKernels& numeric_;
    unsigned threads_;
};

} // namespace onebit
