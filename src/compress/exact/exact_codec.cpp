// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/exact/exact_codec.hpp"

#include <algorithm>
#include <cstring>

#include "compress/block_loops.hpp"

namespace onebit {
namespace {

class NoError final : public Feedback {
  public:
    explicit NoError(std::size_t elements) : elements_(elements) {}

    void reset() override {}
    void get_error(float* error) const override { std::fill_n(error, elements_, 0.0F); }
    void set_error(const float*) override {}
    void set_mask(std::span<const std::uint32_t>) override {}
    std::size_t state_bytes() const override { return 0; }
    std::size_t workspace_bytes() const override { return 0; }

  private:
    std::size_t elements_;
};

/// A block's values in its chunk's message.
std::uint32_t* in_message(std::uint32_t* message, const Block& block) {
    return message + block.index * kBlockElements;
}
const float* in_message(const std::uint32_t* message, const Block& block) {
    return reinterpret_cast<const float*>(message + block.index * kBlockElements);
}

} // namespace

std::unique_ptr<Feedback> ExactCodec::make_feedback(std::span<const Chunk> chunks) const {
    return std::make_unique<NoError>(chunks.back().begin + chunks.back().count - chunks.front().begin);
}

void ExactCodec::encode(const ValueSource& values, const Feedback&, Feedback&,
                        std::span<const SliceToEncode> slices) const {
    for (const SliceToEncode& slice : slices) {
        encode_blocks(slice.slice, threads_, Stores::kCached, [&](const Block& block) {
            const float* const from = values.read(block, nullptr).data;
            std::memcpy(in_message(slice.message, block), from, block.count() * sizeof(float));
        });
    }
}

void ExactCodec::average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback&, Feedback&,
                                const Slice& slice, std::uint32_t* message) const {
    const ArraySink in_place(reinterpret_cast<float*>(message), Stores::kCached, slice.chunk.begin);
    average(messages, share, slice, in_place);
}

void ExactCodec::average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                         const ValueSink& values) const {
    const auto* const parts = reinterpret_cast<const float* const*>(messages.data());
    decode_tiles(slice, threads_, values, [&](const Tile& tile, float* place) {
        alignas(64) float also[kTileElements]; // stays in the innermost cache
        numeric_.mean(parts, messages.size(), tile.begin() - slice.chunk.begin, share, tile.count, values.stores(),
                      place, Stores::kCached, also);
    });
}

void ExactCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t>,
                        const ValueSink& values) const {
    for (const EncodedSlice& slice : slices) {
        decode_tiles(slice.slice, threads_, values, [&](const Tile& tile, float* place) {
            const float* const from = in_message(slice.message, tile.block) + tile.in_block;
            (void)numeric_.copy(from, tile.count, values.stores(), place);
        });
    }
}

void ExactCodec::decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t>,
                              float* values) const {
    std::memcpy(values, in_message(message, block), block.count() * sizeof(float));
}

} // namespace onebit
