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

} // namespace

std::unique_ptr<Feedback> ExactCodec::make_feedback(std::span<const Chunk> chunks) const {
    return std::make_unique<NoError>(chunks.back().begin + chunks.back().count - chunks.front().begin);
}

void ExactCodec::encode(const ValueSource& values, const Feedback&, Feedback&,
                        std::span<const SliceToEncode> slices) const {
    for (const SliceToEncode& slice : slices) {
        encode_blocks(slice.slice, threads_, Stores::kCached, [&](const Block& block) {
            alignas(64) float scratch[kBlockElements];
            const BlockValues from = values.read(block, scratch);
            void* const to = in_message(slice.message, block);
            (void)elements_.narrow(from.data, block.count(), to);
            fill_last_word(to, block);
        });
    }
}

void ExactCodec::average_encode(std::span<const std::uint32_t* const> messages, float share, const Feedback&, Feedback&,
                                const Slice& slice, std::uint32_t* message) const {
    encode_blocks(slice, threads_, Stores::kCached, [&](const Block& block) {
        void* const to = in_message(message, block);
        elements_.mean(reinterpret_cast<const void* const*>(messages.data()), messages.size(),
                       block.index * kBlockElements, share, block.count(), Stores::kCached, to, Stores::kCached, to);
        fill_last_word(to, block);
    });
}

/// Zeroes the bytes of a message's last word behind the last value.
void ExactCodec::fill_last_word(void* message, const Block& block) const {
    const std::size_t behind = block.count() * elements_.bytes() % sizeof(std::uint32_t);
    if (behind > 0) std::memset(elements_.at(message, block.count()), 0, sizeof(std::uint32_t) - behind);
}

void ExactCodec::average(std::span<const std::uint32_t* const> messages, float share, const Slice& slice,
                         const ValueSink& values) const {
    const auto* const parts = reinterpret_cast<const void* const*>(messages.data());
    decode_tiles(slice, threads_, values, [&](const Tile& tile, float* place) {
        elements_.mean(parts, messages.size(), tile.begin() - slice.chunk.begin, share, tile.count, values.stores(),
                       place);
    });
}

void ExactCodec::decode(std::span<const EncodedSlice> slices, std::span<const std::uint32_t>,
                        const ValueSink& values) const {
    for (const EncodedSlice& slice : slices) {
        decode_tiles(slice.slice, threads_, values, [&](const Tile& tile, float* place) {
            const void* const from = elements_.at(in_message(slice.message, tile.block), tile.in_block);
            elements_.widen(from, tile.count, values.stores(), place);
        });
    }
}

void ExactCodec::decode_block(const std::uint32_t* message, const Block& block, std::span<const std::uint32_t>,
                              float* values) const {
    elements_.widen(in_message(message, block), block.count(), Stores::kCached, values);
}

} // namespace onebit
