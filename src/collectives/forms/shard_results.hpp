// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/call/delivery.hpp"
#include "collectives/forms/sharded_form.hpp"
#include "compress/codec.hpp"

namespace onebit {

/// The results of all shards, of all owners, as every rank of a group has them: their messages, and where each of their
/// chunks is in the whole buffer. A shard's own chunks are counted from its beginning.
class ShardResults final : public Delivery {
  public:
    /// Where a shard's messages of a round lie, the chunks' one behind the other.
    using FirstRow = std::function<std::uint32_t*(std::size_t shard, std::size_t round)>;

    /// `groups`: how many groups exchange the shards; a shard has as many chunks. The form must outlive it.
    ShardResults(const ShardedForm& form, const Codec& codec, const std::vector<Chunk>& shards, std::size_t groups,
                 std::size_t rounds, const FirstRow& first_row);

    const std::vector<Chunk>& chunks() const override { return whole_; }
    std::span<const std::uint32_t> mask() const override { return form_.mask(); }

    std::size_t shards() const { return shards_.size(); }
    /// Of a shard.
    const std::vector<Chunk>& chunks_of(std::size_t shard) const { return chunks_[shard]; }
    /// A shard's block, in the whole buffer.
    Block whole_block(std::size_t shard, const Block& block) const {
        return {in_whole(shard)[block.chunk.index], block.index};
    }
    /// A shard's slice as it has been encoded.
    EncodedSlice encoded(std::size_t shard, std::size_t round, const Slice& slice) const {
        return {slice, rows_[shard][round][slice.chunk.index]};
    }
    /// Into a sink of the whole buffer.
    void decode(std::size_t shard, std::size_t round, const Slice& slice, const ValueSink& sink) const;

  private:
    /// A shard's chunks, in the whole buffer.
    std::span<const Chunk> in_whole(std::size_t shard) const {
        return std::span(whole_).subspan(shard * chunks_[shard].size(), chunks_[shard].size());
    }
    std::span<const std::uint32_t> mask_of(std::size_t shard) const;
    void decode(Call call, const Block& block, float* values) const override;
    void decode(Call call, const ValueSink& sink) const override;

    const ShardedForm& form_;
    const Codec& codec_;
    std::vector<Chunk> shards_;
    std::vector<std::vector<Chunk>> chunks_;                     ///< by shard
    std::vector<Chunk> whole_;                                   ///< of all shards
    std::vector<std::vector<std::vector<std::uint32_t*>>> rows_; ///< by shard, round and chunk
};

} // namespace onebit
