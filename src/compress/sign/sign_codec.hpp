// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compress/block_loops.hpp"
#include "compress/codec.hpp"
#include "compress/error_places.hpp"
#include "compress/sign/kernels.hpp"
#include "compress/stored_error.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// Where a chunk's data lie in an error's buffers, in any memory.
class SignPlaces : public ErrorPlaces {
  public:
    SignPlaces(std::span<const Chunk> chunks, onebit_group_t group);

    /// The number of a chunk's block among all blocks.
    std::size_t block_index(const Chunk& chunk, std::size_t block) const {
        return first_block_[chunk.index - chunks().front().index] + block;
    }
    /// The number of its scale among all scales: one per block, or one.
    std::size_t scale_index(const Chunk& chunk, std::size_t block) const {
        return group_ == ONEBIT_GROUP_BLOCK ? block_index(chunk, block) : 0;
    }

    std::size_t blocks() const { return blocks_; }
    std::size_t scale_count() const { return group_ == ONEBIT_GROUP_BLOCK ? blocks_ : 1; }
    onebit_group_t group() const { return group_; }

  private:
    onebit_group_t group_;
    std::vector<std::size_t> first_block_;
    std::size_t blocks_ = 0;
};

/// The sign codec's error, in the one-pass form: `corrected` holds c, the corrected values as they were last encoded;
/// `scales` holds the scales they were encoded with. The error itself, c - scale * sgn(c), is formed in registers only.
/// So an encode reads 8 bytes and writes 4 per element, where a stored residual would need 20.
class SignFeedback final : public Feedback, public SignPlaces {
  public:
    SignFeedback(std::span<const Chunk> chunks, onebit_group_t group);
    /// Stores the error itself, of a type that is not float32. Only for ONEBIT_GROUP_BLOCK.
    SignFeedback(std::span<const Chunk> chunks, onebit_datatype_t type, const NumericKernels& kernels);

    void reset() override;
    void get_error(float* error) const override;
    void set_error(const float* error) override;
    void set_mask(std::span<const std::uint32_t> mask) override;
    std::size_t state_bytes() const override {
        return corrected.bytes() + scales.bytes() + (narrow_ ? narrow_->state_bytes() : 0);
    }
    std::size_t workspace_bytes() const override { return sums.bytes() + valid_counts_.bytes(); }

    /// Mask words of a block; NULL where all elements take part.
    const std::uint32_t* valid(const Chunk& chunk, std::size_t block) const {
        return mask_at(mask_, Block{chunk, block}.begin());
    }
    /// Elements that take part, in a block and in all chunks.
    std::size_t valid_count(const Chunk& chunk, std::size_t block) const {
        return valid_counts_[block_index(chunk, block)];
    }
    std::size_t valid_count() const { return valid_count_; }

    bool is_narrow() const { return narrow_.has_value(); }
    const StoredError& narrow() const { return *narrow_; }
    StoredError& narrow() { return *narrow_; }

    AlignedBuffer<float> corrected; ///< these three are empty where the error is narrow
    AlignedBuffer<float> scales;    ///< one per block, or one
    AlignedBuffer<double> sums;     ///< one per block, of the message being encoded

  private:
    template <typename Visit>
    void for_each_block(const Visit& visit) const;
    /// Write the error's elements, and read them. index_of(chunk, block): where `error` has a block's first element.
    template <typename IndexOf>
    void form_error(const IndexOf& index_of, float* error) const;
    template <typename IndexOf>
    void take_error(const IndexOf& index_of, const float* error);
    void count_valid();

    std::optional<StoredError> narrow_;
    std::span<const std::uint32_t> mask_;
    AlignedBuffer<std::uint32_t> valid_counts_; ///< by block
    std::size_t valid_count_ = 0;
};

/// One bit per element. A message is the blocks in order, each with its sign words and its scale; or with sign words
/// alone, and the one scale for all at the end (docs/WIRE_FORMAT.md).
class SignMessages : public Codec {
  public:
    std::size_t message_words(const Chunk& chunk) const final;
    WordRange words_of(const Slice& slice) const final;
    WordRange trailer_of(const Chunk& chunk) const final;

  protected:
    SignMessages(onebit_scale_t scale, onebit_group_t group) : scale_(scale), group_(group) {}

    onebit_scale_t scale_;
    onebit_group_t group_;
};

/// On the CPU. Holds no state.
class SignCodec final : public SignMessages {
  public:
    SignCodec(const SignKernels& kernels, const CodecConfig& config)
        : SignMessages(config.scale, config.group),
          kernels_(kernels),
          threads_(config.threads),
          error_type_(config.error_type) {}

    const char* kernels() const override { return kernels_.name; }
    bool takes_blends() const override { return true; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const override;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const override;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const override;
    void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                 const ValueSink& values) const override;
    bool encoded_finite(const Feedback& after, const Slice& slice, const std::uint32_t* message) const override;
    void seal(Feedback& after, std::span<std::uint32_t* const> messages) const override;
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const override;
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const override;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const override;

  private:
    void encode_slice(const ValueSource& values, const SignFeedback& before, SignFeedback& after,
                      const SliceToEncode& encoded) const;
    void decode_slice(const EncodedSlice& encoded, std::span<const std::uint32_t> mask, const ValueSink& values) const;
    bool is_finite(const EncodedSlice& encoded) const;
    template <typename Kernel>
    void encode_block(const Block& block, const SignFeedback& before, SignFeedback& after, std::uint32_t* message,
                      const Kernel& kernel) const;
    template <typename Kernel>
    void encode_narrow(const Block& block, const SignFeedback& before, SignFeedback& after, std::uint32_t* message,
                       const Kernel& kernel) const;
    float finish_block(SignFeedback& after, const Block& block, const float* corrected, float sum,
                       std::uint32_t* message) const;

    const SignKernels& kernels_;
    unsigned threads_;
    onebit_datatype_t error_type_;
};

Status make_sign_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);
/// On a GPU: cuda/cuda_sign_codec.cpp, or where there is no CUDA, compress/cuda/no_cuda.cpp.
Status make_cuda_sign_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
