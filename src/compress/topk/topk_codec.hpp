// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compress/blockwise_codec.hpp"
#include "compress/topk/kernels.hpp"
#include "compress/topk/layout.hpp"

namespace onebit {

/// The few largest elements of each block, on the host (docs/WIRE_FORMAT.md, "Top-k").
class TopkCodec final : public BlockwiseCodec {
  public:
    TopkCodec(const TopkKernels& kernels, const CodecConfig& config);

  private:
    std::size_t first_word(const Chunk& chunk, std::size_t block) const override {
        return layout_.first_word(chunk, block);
    }
    void encode_tile(const Tile& tile, const float* values, const float* before, float* after, Stores stores,
                     const std::uint32_t* valid, std::uint32_t* message) const override;
    void finish_block(const Block& block, float* after, std::uint32_t* message) const override;
    void add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const override;
    void decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                     float* values) const override;
    bool is_finite(const Block& block, const std::uint32_t* message) const override;
    void decode_cached(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, float* values) const;
    void decode_past_caches(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid,
                            float* values) const;

    void choose(const float* corrected, std::size_t count, const float* of_runs, Positions* kept) const;
    template <typename Values>
    void encode_kept(std::size_t count, float largest, const Positions& kept, float* after, std::uint32_t* words) const;
    template <typename Body>
    void for_each_kept(const Tile& tile, const std::uint32_t* message, const Body& body) const;

    const TopkKernels& kernels_;
    TopkLayout layout_;
};

Status make_topk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
