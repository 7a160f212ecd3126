// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/phases/message_layout.hpp"
#include "collectives/phases/pieces.hpp"
#include "collectives/phases/scatter_phase.hpp"
#include "collectives/phases/scatter_pieces.hpp"
#include "core/aligned_buffer.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A level below the last one. On the way up it is a reduce-scatter among the ranks of a group, exact or with a code of
/// its own, in pieces. Then each rank has the average, or sum, of one shard. On the way down it is an all-gather of the
/// messages that the levels above have made of these shards.
class LowerLevel {
  public:
    /// `codec`: of its messages. `part`: that its ranks bring, of the whole buffer. The channel must outlive it.
    LowerLevel(Transport& channel, std::unique_ptr<Codec> codec, const Chunk& part, onebit_op_t op,
               std::size_t piece_blocks);

    std::size_t ranks() const { return layout_.chunks().size(); }
    const Chunk& part() const { return part_; }
    /// The shard that this rank has afterwards, in the whole buffer.
    Chunk shard() const {
        Chunk shard = layout_.own_chunk();
        shard.begin += part_.begin;
        return shard;
    }
    /// The average of the shard, after the last stage of the way up; and what the next level reads it from.
    float* shard_values() { return mean_.data(); }
    const ValueSource& shard_source() const { return shard_source_; }

    /// Some words of messages.
    using Words = std::span<std::uint32_t>;
    /// Local. Plans both ways; uses the three tags from `tag` on of the channel. `results`: by round, and by the rank
    /// that has the shards, the messages of all that was made of these shards. The own messages are there before the
    /// way down.
    Status plan(int tag, const std::vector<std::vector<std::vector<Words>>>& results);

    /// Adds the stages of a way; it must outlive them.
    void add_stages_up(std::vector<Stage>* stages);
    void add_stages_down(std::vector<Stage>* stages);
    /// Begins a call. `source`: its elements are counted from the part's first one; NULL: whatever lies there is sent.
    void begin(const ValueSource* source, std::uint64_t number, std::size_t round);

    Feedback& error() { return phase_.error().now(); }
    const Feedback& error() const { return phase_.error().now(); }
    /// The words cover the part.
    void set_mask(std::span<const std::uint32_t> mask) { phase_.error().set_mask(mask); }
    std::size_t workspace_bytes() const { return messages_.bytes() + phase_.workspace_bytes() + mean_.bytes(); }
    /// Bytes that this rank sends in a call.
    std::uint64_t bytes_per_call() const { return bytes_per_call_; }

  private:
    Status average_in_pieces(Step* step);
    Status average_next(bool* did);

    Transport& channel_;
    std::unique_ptr<Codec> codec_;
    Chunk part_;
    float share_; ///< of a rank's values in the result
    MessageLayout layout_;
    AlignedBuffer<std::uint32_t> messages_;
    ScatterPhase phase_;
    Pieces pieces_;
    ScatterPieces scatter_;
    AlignedBuffer<float> mean_;
    ArraySource shard_source_;                       ///< of mean_
    std::vector<std::unique_ptr<Exchange>> results_; ///< by round
    std::uint64_t bytes_per_call_ = 0;
    std::size_t round_ = 0; ///< of the call in flight
};

} // namespace onebit
