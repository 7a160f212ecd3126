// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "compress/block_loops.hpp"
#include "compress/codec.hpp"
#include "compress/stored_error.hpp"
#include "numeric/kernels.hpp"

namespace onebit {

/// The base of codecs on the host whose messages are the parts of their blocks, one after the other, and which store
/// what they couldn't express (docs/WIRE_FORMAT.md, "Grouped codes"). A derived codec encodes and decodes one tile or
/// block. Holds no state. Takes values as they are, or as a mean; no blends.
class BlockwiseCodec : public Codec {
  public:
    const char* kernels() const final { return name_; }
    std::size_t message_words(const Chunk& chunk) const final { return first_word(chunk, chunk.blocks()); }
    WordRange words_of(const Slice& slice) const final;
    WordRange trailer_of(const Chunk& chunk) const final { return {message_words(chunk), 0}; }
    std::unique_ptr<Feedback> make_feedback(std::span<const Chunk> chunks) const final;
    void encode(const ValueSource& values, const Feedback& before, Feedback& after,
                std::span<const SliceToEncode> slices) const final;
    void average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback& before,
                        Feedback& after, const Slice& slice, std::uint32_t* message) const final;
    void average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                 const ValueSink& values) const final;
    bool encoded_finite(const Feedback&, const Slice& slice, const std::uint32_t* message) const final {
        return all_finite({slice, message});
    }
    void seal(Feedback&, std::span<std::uint32_t* const>) const final {} // nothing waits for the last slice
    void decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t> mask,
                const ValueSink& values) const final;
    void decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t> mask,
                      float* values) const final;
    std::size_t first_overflowed(std::span<const EncodedSlice> slices) const final;

  protected:
    /// `kernels`: the name of the instruction set, for the codec's own kernels and the numeric ones.
    BlockwiseCodec(const char* kernels, const CodecConfig& config)
        : name_(kernels),
          numeric_(numeric_kernels(kernels)),
          threads_(config.threads),
          error_type_(config.error_type) {}

    const NumericKernels& numeric() const { return numeric_; }

  private:
    // `message` is the chunk's, `valid` the mask's words from the tile's first element on, NULL where all take part.

    /// The first word of a block in its chunk's message. For block = chunk.blocks(): the message's length.
    virtual std::size_t first_word(const Chunk& chunk, std::size_t block) const = 0;
    /// Encodes c = values + before; or only leaves c in `after`, where finish_block encodes. `after` is `before`, or
    /// doesn't overlap it. `stores`: how `after` may be written.
    virtual void encode_tile(const Tile& tile, const Feedback::Draw& draw, const float* values, const float* before,
                             float* after, Stores stores, const std::uint32_t* valid, std::uint32_t* message) const = 0;
    /// Called once all tiles of a block are encoded. `after`: the block's.
    virtual void finish_block(const Block& /*block*/, const Feedback::Draw& /*draw*/, float* /*after*/,
                              std::uint32_t* /*message*/) const {}
    /// sums[i] += what the message stands for, times `share`.
    virtual void add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const = 0;
    /// values[i] = what the message stands for, 0 where not valid.
    virtual void decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                             float* values) const = 0;
    /// False if the block held a value that wasn't finite, or its error has overflowed.
    virtual bool is_finite(const Block& block, const std::uint32_t* message) const = 0;

    /// `values_of(tile)`: where the tile's values are.
    template <typename ValuesOf>
    void encode_block(const Block& block, const ValuesOf& values_of, const StoredError& before, StoredError& after,
                      Stores stores, std::uint32_t* message) const;
    template <typename ValuesOf>
    void encode_narrow(const Block& block, const ValuesOf& values_of, const StoredError& before, StoredError& after,
                       std::uint32_t* message) const;
    template <typename ValuesOf>
    void encode_tiles(const Block& block, const ValuesOf& values_of, const StoredError& state, const float* before,
                      float* after, Stores stores, std::uint32_t* message) const;
    void encode_values(const Block& block, const BlockValues& from, const StoredError& before, StoredError& after,
                       Stores stores, std::uint32_t* message) const;
    void encode_mean(const Block& block, const Mean& mean, const StoredError& before, StoredError& after, Stores stores,
                     std::uint32_t* message) const;
    /// Adds up what the messages stand for, times `share`, in rank order.
    void add_up(std::span<const std::uint32_t* const> messages, float share, const Tile& tile, float* sums) const;
    bool all_finite(const EncodedSlice& encoded) const;

    const char* name_;
    const NumericKernels& numeric_;
    unsigned threads_;
    onebit_datatype_t error_type_;
};

} // namespace onebit
