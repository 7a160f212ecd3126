// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "compress/blockwise_codec.hpp"
#include "compress/sparse/kernels.hpp"
#include "compress/sparse/layout.hpp"

namespace onebit {

/// The base of codecs that send few elements of each block, and keep the other elements as they are. It codes values; a
/// derived codec chooses the elements.
class SparseCodec : public BlockwiseCodec {
  protected:
    SparseCodec(const CodecConfig& config, const SparseLayout& layout);

    std::size_t entries(std::size_t elements) const { return layout_.entries(elements); }

    /// What a codec chooses elements by.
    struct ToChoose {
        const Block& block;
        std::uint64_t call;     ///< Feedback::Draw::call
        const float* corrected; ///< of the block's elements
        const float* of_runs;   ///< SparseKernels::find_largest
    };
    /// Some of the entries of a block.
    struct Entries {
        std::size_t first;
        std::size_t end;
    };

    const SparseKernels& kernels_;

  private:
    /// Chooses which elements of a block are sent: entries() of them, in order. Describes them in `words`, which were
    /// 0.
    virtual void choose(const ToChoose& from, Positions* kept, std::uint32_t* words) const = 0;
    /// The entries of a tile, as the words say. Their positions in the block are kept->at[first] to [end - 1]. The
    /// first and the last may lie outside the tile.
    virtual Entries read_positions(const Tile& tile, const std::uint32_t* words, Positions* kept) const = 0;

    std::size_t first_word(const Chunk& chunk, std::size_t block) const final {
        return layout_.first_word(chunk, block);
    }
    void encode_tile(const Tile& tile, const Feedback::Draw& draw, const float* values, const float* before,
                     float* after, Stores stores, const std::uint32_t* valid, std::uint32_t* message) const final;
    void finish_block(const Block& block, const Feedback::Draw& draw, float* after, std::uint32_t* message) const final;
    void add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const final;
    void decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                     float* values) const final;
    bool is_finite(const Block& block, const std::uint32_t* message) const final;
    void decode_cached(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, float* values) const;
    void decode_past_caches(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid,
                            float* values) const;

    template <typename Values>
    void encode_kept(std::size_t count, const Positions& kept, float* after, std::uint32_t* words) const;
    template <typename Body>
    void for_each_kept(const Tile& tile, const std::uint32_t* message, const Body& body) const;
    SparseCodec(const SparseKernels& kernels, const CodecConfig& config, const SparseLayout& layout)
        : BlockwiseCodec(kernels.name, config), kernels_(kernels), layout_(layout) {}

    SparseLayout layout_;
};

} // namespace onebit
