// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sparse/randomk.hpp"

namespace onebit {
namespace {

/// MurmurHash3's finalizer: every bit of `x` has a say in every bit of the result.
constexpr std::uint32_t mixed(std::uint32_t x) {
    x = (x ^ x >> 16) * 0x85ebca6bU;
    x = (x ^ x >> 13) * 0xc2b2ae35U;
    return x ^ x >> 16;
}

constexpr std::uint32_t kGolden = 0x9e3779b9U; // 2^32 over the golden ratio: keeps 0 from being drawn by 0

/// One element of each of `entries` equal parts of a block, drawn by the number of the call that sends it and the
/// block's place in its chunk. So each element is as likely as all others, and all ranks draw the same ones.
void draw(std::uint32_t call, const Block& block, std::size_t entries, Positions* kept) {
    const std::size_t count = block.count();
    const std::uint32_t seed = mixed(mixed(call + kGolden) + static_cast<std::uint32_t>(block.index));
    std::size_t begin = 0;
    for (std::size_t j = 0; j < entries; ++j) {
        const std::size_t end = (j + 1) * count / entries;
        const std::uint64_t drawn = mixed(seed + static_cast<std::uint32_t>(j + 1) * kGolden);
        kept->at[j] = static_cast<std::uint16_t>(begin + (drawn * (end - begin) >> 32));
        begin = end;
    }
}

/// The number of the call is sent in the place of positions.
class RandomkCodec final : public SparseCodec {
  public:
    explicit RandomkCodec(const CodecConfig& config) : SparseCodec(config, randomk_layout(config.sparse)) {}

  private:
    void choose(const ToChoose& from, Positions* kept, std::uint32_t* words) const override {
        words[0] = static_cast<std::uint32_t>(from.call);
        read_positions(from.block, words, kept);
    }
    void read_positions(const Block& block, const std::uint32_t* words, Positions* kept) const override {
        draw(words[0], block, entries(block.count()), kept);
    }
};

} // namespace

Status make_randomk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    *codec = std::make_unique<RandomkCodec>(config);
    return {};
}

} // namespace onebit
