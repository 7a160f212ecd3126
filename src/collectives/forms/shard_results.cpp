// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/shard_results.hpp"

#include "collectives/phases/message_layout.hpp"

namespace onebit {
namespace {

/// The part of a sink that is a shard's, whose elements and chunks are counted from its own beginning.
class ShardSink final : public ValueSink {
  public:
    /// `chunks`: the shard's, in the whole buffer.
    ShardSink(const ValueSink& whole, std::span<const Chunk> chunks) : whole_(whole), chunks_(chunks) {}

    float* place(std::size_t begin, float* scratch) const override { return whole_.place(first() + begin, scratch); }
    Stores stores() const override { return whole_.stores(); }
    void written(const Block& block, std::size_t begin, std::size_t count, const float* values) const override {
        whole_.written({chunks_[block.chunk.index], block.index}, first() + begin, count, values);
    }
    bool overflowed() const override { return whole_.overflowed(); }

  private:
    std::size_t first() const { return chunks_.front().begin; }

    const ValueSink& whole_;
    std::span<const Chunk> chunks_;
};

} // namespace

ShardResults::ShardResults(const ShardedForm& form, const Codec& codec, const std::vector<Chunk>& shards,
                           std::size_t groups, std::size_t rounds, const FirstRow& first_row)
    : form_(form), codec_(codec), shards_(shards), rows_(shards.size()) {
    for (std::size_t s = 0; s < shards.size(); ++s) {
        const MessageLayout layout(codec, partition(shards[s].count, groups), 0);
        for (std::size_t round = 0; round < rounds; ++round) {
            rows_[s].push_back(layout.rows_from(first_row(s, round)));
        }
        for (const Chunk& chunk : layout.chunks()) {
            whole_.push_back({whole_.size(), shards[s].begin + chunk.begin, chunk.count});
        }
        chunks_.push_back(layout.chunks());
    }
}

std::span<const std::uint32_t> ShardResults::mask_of(std::size_t shard) const {
    const std::span<const std::uint32_t> mask = form_.mask();
    return mask.empty() ? mask : mask.subspan(shards_[shard].begin / kWordElements);
}

void ShardResults::decode(std::size_t shard, std::size_t round, const Slice& slice, const ValueSink& sink) const {
    codec_.decode(only(encoded(shard, round, slice)), mask_of(shard), ShardSink(sink, in_whole(shard)));
}

void ShardResults::decode(Call call, const Block& block, float* values) const {
    const std::size_t groups = chunks_.front().size();
    const std::size_t shard = block.chunk.index / groups;
    const Chunk& chunk = chunks_[shard][block.chunk.index % groups];
    const std::uint32_t* const message = rows_[shard][form_.flat().round_of(call)][chunk.index];
    codec_.decode_block(message, {chunk, block.index}, mask_of(shard), values);
}

void ShardResults::decode(Call call, const ValueSink& sink) const {
    for (std::size_t s = 0; s < shards(); ++s) {
        for (const Chunk& chunk : chunks_[s]) decode(s, form_.flat().round_of(call), Slice::whole(chunk), sink);
    }
}

} // namespace onebit
