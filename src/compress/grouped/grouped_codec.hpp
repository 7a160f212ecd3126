// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "compress/block_loops.hpp"
#include "compress/codec.hpp"
#include "compress/error_places.hpp"
#include "compress/grouped/kernels.hpp"
#include "core/aligned_buffer.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

/// What is still to be delivered of each element of some chunks.
class GroupedFeedback final : public Feedback, public ErrorPlaces {
  public:
    explicit GroupedFeedback(std::span<const Chunk> chunks);

    void reset() override { error.fill_zero(); }
    void get_error(float* values) const override;
    void set_error(const float* values) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override { return error.bytes(); }
    std::size_t workspace_bytes() const override { return 0; }

    const std::uint32_t* valid(std::size_t element) const { return mask_at(mask_, element); }

    AlignedBuffer<float> error;

  private:
    void zero_masked();

    std::span<const std::uint32_t> mask_;
};

/// Codes of several bits with a scale for each 256 elements, on the host (docs/WIRE_FORMAT.md, "Codes of several
/// bits"). Holds no state. Takes values as they are, or as a mean; no blends.
class GroupedCodec final : public Codec {
  public:
    GroupedCodec(const GroupedTable& table, const CodecConfig& config);

    const char* kernels() const override { return name_; }
    std::size_t message_words(const Chunk& chunk) const override;
    WordRange words_of(const Slice& slice) const override;
    WordRange trailer_of(const Chunk& chunk) const override { return {message_words(chunk), 0}; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                 const ValueSink& values) const override;
    bool encoded_finite(const Feedback&, const Slice& slice, const std::uint32_t* message) const override {
        return is_finite({slice, message});
    }
    void seal(Feedback&, std::span<std::uint32_t* const>) const override {} // nothing waits for the last slice
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override;

  private:
    /// What the messages stand for, times `share`, in rank order.
    void add_up(std::span<const std::uint32_t* const> messages, float share, const Tile& tile, float* sums) const;
    template <typename ValuesOf>
    void encode_block(const Block& block, const ValuesOf& values_of, const GroupedFeedback& before,
                      GroupedFeedback& after, Stores stores, std::uint32_t* message) const;
    void encode_values(const Block& block, const BlockValues& from, const GroupedFeedback& before,
                       GroupedFeedback& after, Stores stores, std::uint32_t* message) const;
    bool is_finite(const EncodedSlice& encoded) const;
    template <typename Message>
    auto groups_of(const Tile& tile, Message* message) const;

    const char* name_;
    const GroupedKernels& kernels_;
    const NumericKernels& numeric_;
    unsigned threads_;
};

/// The codec that config.codec says, one of codes.def.
Status make_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
