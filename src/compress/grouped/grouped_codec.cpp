// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/grouped/grouped_codec.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "compress/grouped/layout.hpp"
#include "core/kernel_tables.hpp"
#include "core/random_bits.hpp"

namespace onebit {

static_assert(kTileElements % kGroupElements == 0);

GroupedCodec::GroupedCodec(const GroupedTable& table, const CodecConfig& config)
    : BlockwiseCodec(table.name, config),
      kernels_(*std::ranges::find(table.codes, config.codec, &GroupedKernels::codec)),
      stochastic_(config.rounding == ONEBIT_ROUNDING_STOCHASTIC) {}

std::size_t GroupedCodec::first_word(const Chunk& chunk, std::size_t block) const {
    return grouped_word(kernels_.bits, chunk, block);
}

/// Where the groups of a tile are in its chunk's message. A tile begins with a group.
template <typename Message>
auto GroupedCodec::groups_of(const Tile& tile, Message* message) const {
    Message* const scales = message + grouped_word(kernels_.bits, tile.block.chunk, tile.block.index);
    Message* const codes = scales + scale_words(tile.block.count());
    using Groups = std::conditional_t<std::is_const_v<Message>, GroupsToRead, GroupsToWrite>;
    return Groups{scales + scale_words(tile.in_block), codes + code_words(kernels_.bits, tile.in_block)};
}

void GroupedCodec::encode_tile(const Tile& tile, const Feedback::Draw& draw, const float* values, const float* before,
                               float* after, Stores stores, const std::uint32_t* valid, std::uint32_t* message) const {
    const GroupsToWrite to = groups_of(tile, message);
    if (!stochastic_) return kernels_.encode(values, before, after, stores, valid, tile.count, to);
    // Where a block is encoded twice, by a worker and by a server, the two encoders draw different numbers.
    const std::uint32_t block = mixed(draw.stream + kGolden) + static_cast<std::uint32_t>(tile.block.begin());
    const DrawnElements draws = {seed_of(static_cast<std::uint32_t>(draw.call), block),
                                 static_cast<std::uint32_t>(tile.in_block)};
    kernels_.encode_stochastic(draws, values, before, after, stores, valid, tile.count, to);
}

void GroupedCodec::add(const Tile& tile, const std::uint32_t* message, float share, float* sums) const {
    kernels_.add(groups_of(tile, message), share, tile.count, sums);
}

void GroupedCodec::decode_tile(const Tile& tile, const std::uint32_t* message, const std::uint32_t* valid,
                               Stores stores, float* values) const {
    kernels_.decode(groups_of(tile, message), valid, tile.count, stores, values);
}

/// The scales of its groups tell.
bool GroupedCodec::is_finite(const Block& block, const std::uint32_t* message) const {
    const std::uint32_t* const scales = groups_of(Tile{block, 0, block.count()}, message).scales;
    const auto finite = [](std::uint32_t scale) { return std::isfinite(std::bit_cast<float>(scale)); };
    return std::all_of(scales, scales + scale_words(block.count()), finite);
}

Status make_grouped_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    const char* const name = numeric_kernels(config.kernels).name;
    *codec = std::make_unique<GroupedCodec>(table_or_reference(available_grouped_kernels(), name), config);
    return {};
}

} // namespace onebit
