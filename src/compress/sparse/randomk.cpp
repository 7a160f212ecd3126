// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sparse/randomk.hpp"

#include "core/random_bits.hpp"

namespace onebit {
namespace {

/// The number of the call is sent instead of positions. A block is cut into parts that differ by one element at most.
/// One element of each part is drawn, by the call's number and the block's index in its chunk, so all ranks draw the
/// same.
class RandomkCodec final : public SparseCodec {
  public:
    explicit RandomkCodec(const CodecConfig& config) : SparseCodec(config, randomk_layout(config.sparse)) {}

  private:
    void choose(const ToChoose& from, Positions* kept, std::uint32_t* words) const override {
        words[0] = static_cast<std::uint32_t>(from.call);
        read_positions({from.block, 0, from.block.count()}, words, kept);
    }
    Entries read_positions(const Tile& tile, const std::uint32_t* words, Positions* kept) const override {
        const std::size_t count = tile.block.count();
        const std::size_t parts = entries(count);
        const Entries of_tile = {tile.in_block * parts / count,
                                 ceil_divide((tile.in_block + tile.count) * parts, count)};
        const std::uint32_t seed = seed_of(words[0], static_cast<std::uint32_t>(tile.block.index));
        for (std::size_t j = of_tile.first; j < of_tile.end; ++j) {
            const std::size_t begin = j * count / parts;
            const std::size_t length = (j + 1) * count / parts - begin;
            const std::uint64_t bits = drawn(seed, static_cast<std::uint32_t>(j));
            kept->at[j] = static_cast<std::uint16_t>(begin + (bits * length >> 32));
        }
        return of_tile;
    }
};

} // namespace

Status make_randomk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    *codec = std::make_unique<RandomkCodec>(config);
    return {};
}

} // namespace onebit
