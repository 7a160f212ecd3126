// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "collectives/flat.hpp"
#include "collectives/flat_pipelined.hpp"
#include "collectives/node_groups.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// The compressed allreduce on two levels: exact inside a node, one bit per element between nodes.
///
/// With N nodes of L ranks the buffer is cut into L shards; the rank in place l of each node owns shard l. It averages
/// the shard over its node's ranks, exactly, and takes part, with the L-th ranks of the other nodes, in a flat
/// compressed allreduce of that average. The resulting messages lie in memory that the node shares: all its ranks
/// decode from there. Between nodes each node sends 1/L of what the flat form would; the error of a rank covers its
/// shard alone.
///
/// Inside a node ranks meet through memory alone. Each has a segment: a counter of the meetings it has come to, two
/// slots of values for every other rank, its shard's messages. A rank that comes to a meeting has written what others
/// read after it, and has read what will be overwritten after it.
class TwoLevelAllreduce final : public Algorithm {
  public:
    /// What only all ranks together can make; collective.
    struct Channels {
        std::unique_ptr<Transport> node;   ///< this rank's node
        std::unique_ptr<Transport> across; ///< the ranks in this place of all nodes
        std::unique_ptr<SharedMemory> memory;
    };
    static Status open_channels(Transport& channel, const NodeGroups& groups, const Codec& codec, std::size_t count,
                                Channels* channels);

    /// Local. The tags from `tag` on are its own on the channel across.
    static Status create(Channels channels, const Codec& codec, std::size_t count, std::size_t piece_blocks,
                         unsigned threads, int tag, std::unique_ptr<TwoLevelAllreduce>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;

    /// Of the shard, whose elements are counted from its own beginning.
    FlatAllreduce& flat() { return *flat_; }
    const Chunk& shard() const { return shards_[place_]; }
    std::uint64_t bytes_sent() const { return channels_.across->bytes_sent(); }
    std::size_t workspace_bytes() const;

    /// Of the whole buffer; empty: all elements take part.
    void set_mask(AlignedBuffer<std::uint32_t> mask);

  private:
    TwoLevelAllreduce(Channels channels, const Codec& codec, std::size_t count, unsigned threads);

    /// Where things lie in a segment.
    struct Layout {
        Layout(const Codec& codec, const std::vector<Chunk>& shards, std::size_t nodes);
        std::size_t slot_elements = 0; ///< of a slot: a piece
        std::size_t messages_at = 0;   ///< in bytes
        std::size_t bytes = 0;         ///< of the segment
    };

    std::atomic_ref<std::uint64_t> meetings_of(std::size_t place);
    float* slot(std::size_t owner, std::size_t reader, std::size_t piece);
    std::uint32_t* messages_of(std::size_t place);
    /// Where in the buffer a piece of a shard lies.
    Chunk piece_of(std::size_t place, std::size_t piece) const;
    void come_to_meeting();
    bool all_have_come();

    Status average_in_node(Step* step);
    Status exchange_between_nodes(Step* step);
    Status await_messages(Step* step);
    Status check_messages(Step* step);
    Status decode_messages(Step* step);
    void share(std::size_t piece);
    void average(std::size_t piece);

    const Codec& codec_;
    unsigned threads_;
    Channels channels_;
    std::size_t place_;
    std::vector<Chunk> shards_;              ///< by place
    std::vector<std::vector<Chunk>> chunks_; ///< by place: the shard's chunks, as the flat form cuts it
    Layout layout_;
    std::size_t pieces_;                ///< of the longest shard
    AlignedBuffer<float> node_average_; ///< of the own shard
    std::unique_ptr<FlatAllreduce> flat_;
    std::unique_ptr<PipelinedFlat> between_nodes_;
    AlignedBuffer<std::uint32_t> mask_;

    // The call in flight.
    Operands operands_;
    ArraySource source_; ///< the node's average
    StageRunner inner_;
    std::uint64_t meetings_ = 0; ///< that this rank has come to, in all calls
    std::size_t shared_ = 0;     ///< pieces that it has shared
    std::size_t averaged_ = 0;   ///< and averaged
    std::size_t decoded_ = 0;    ///< shards
    SliceCursor cursor_;
    std::vector<Stage> stages_;
};

} // namespace onebit
