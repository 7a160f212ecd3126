// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "compress/blockwise_codec.hpp"
#include "compress/grouped/kernels.hpp"

namespace onebit {

/// A code with a scale for each 256 elements, on the host (docs/WIRE_FORMAT.md, "Grouped codes").
class GroupedCodec final : public BlockwiseCodec {
  public:
    GroupedCodec(const GroupedTable& table, const CodecConfig& config);

  private:
    std::size_t first_word(const Chunk& chunk, std::size_t block) const override;
    void encode_tile(const Tile& tile, const Feedback::Draw& draw, const float* values, const float* before,
                     float* after, Stores stores, const std::uint32_t* valid, std::uint32_t* message) const override;
    void add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const override;
    void decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid, Stores stores,
                     float* values) const override;
    bool is_finite(const Block& block, const std::uint32_t* message) const override;
    template <typename Message>
    auto groups_of(const Tile& tile, Message* message) const;

    const GroupedKernels& kernels_;
    bool stochastic_;
};

/// The codec that config.codec names, one of codes.def.
Status make_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);
/// On a GPU: cuda/cuda_grouped_codec.cpp, or where there is no CUDA, compress/cuda/no_cuda.cpp.
Status make_cuda_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec);

} // namespace onebit
