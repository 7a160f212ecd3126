// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/flat.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// The compressed allreduce on two levels, exact inside a node, encoded between nodes: what its two forms
/// have in common.
///
/// With N nodes of L ranks the buffer is cut into L shards; the rank in place l of each node owns shard l. It averages
/// the shard over its node's ranks, exactly and in the order of places, and takes part, with the ranks in place l of
/// the other nodes, in a flat compressed allreduce of those averages. All ranks of a node decode all its shards'
/// messages. Between nodes each node sends 1/L of what the flat form would; a rank's error covers its shard alone.
///
/// How values and messages get around in a node is what the forms differ in: TwoLevelAllreduce, in memory that its
/// ranks share, and DeviceTwoLevel, by messages. The bits are the same.
class TwoLevelForm : public Algorithm {
  public:
    /// What only all ranks together can make.
    struct Channels {
        std::unique_ptr<Transport> node;      ///< this rank's node
        std::unique_ptr<Transport> across;    ///< the ranks in this place of all nodes
        std::unique_ptr<SharedMemory> memory; ///< of the node, where it is used

        void give_up(const Status& why);
    };

    /// Of the shard, whose elements are counted from its own beginning.
    FlatAllreduce& flat() { return *flat_; }
    const Chunk& shard() const { return shards_[place_]; }
    std::uint64_t bytes_sent() const override { return channels_.node->bytes_sent() + channels_.across->bytes_sent(); }

    /// The shard's part of a mask on the host, where the codec works.
    AlignedBuffer<std::uint32_t> shard_of(const AlignedBuffer<std::uint32_t>& mask) const;
    /// Replaces the mask of the whole buffer (empty: all elements take part), which is where the codec works;
    /// `of_shard` is what shard_of made of it.
    void set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard);
    bool masked() const { return mask_.size() > 0; }

  protected:
    /// The channels must outlive it.
    TwoLevelForm(Channels& channels, const Codec& codec, onebit_op_t op, std::size_t count);

    /// `messages`: as in Extras.
    void make_flat(FlatAllreduce::Extras extras, std::uint32_t* messages);
    /// What all ranks say where the error of some shard has overflowed. `reset`: it is zero now.
    static Status overflow(bool reset);
    /// Of a rank's values in its node's average, or sum.
    float share_in_node() const { return share_of(op_, shards_.size()); }

    const Codec& codec_;
    onebit_op_t op_;
    Channels& channels_;
    std::size_t place_;
    std::size_t nodes_;
    std::vector<Chunk> shards_;              ///< by place
    std::vector<std::vector<Chunk>> chunks_; ///< by place: the shard's chunks, as the flat form cuts it
    std::unique_ptr<FlatAllreduce> flat_;
    AlignedBuffer<std::uint32_t> mask_;
};

} // namespace onebit
