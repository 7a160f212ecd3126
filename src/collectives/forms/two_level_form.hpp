// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/forms/sharded_form.hpp"

namespace onebit {

/// The compressed allreduce on two levels, exact inside a node, encoded between nodes: what its two forms
/// have in common.
///
/// With N nodes of L ranks the buffer is cut into L shards; the rank in place l of each node owns shard l. It averages
/// the shard over its node's ranks, exactly and in the order of places, and takes part, with the ranks in place l of
/// the other nodes, in a flat compressed allreduce of those averages. All ranks of a node decode all its shards'
/// messages. Between nodes each node sends 1/L of the flat form's bytes. A rank's error covers its shard alone.
///
/// The forms differ in how values and messages travel in a node: in TwoLevelAllreduce through memory that its ranks
/// share, in DeviceTwoLevel by messages. The bits are the same.
class TwoLevelForm : public ShardedForm {
  public:
    /// Channels that only all ranks together can make.
    struct Channels {
        std::unique_ptr<Transport> node;      ///< this rank's node
        std::unique_ptr<Transport> across;    ///< the ranks in this place of all nodes
        std::unique_ptr<SharedMemory> memory; ///< of the node, where it is used

        void give_up(const Status& why);
    };

    Chunk shard() const override { return shards_[place_]; }
    std::uint64_t bytes_sent() const override { return channels_.node->bytes_sent() + channels_.across->bytes_sent(); }

  protected:
    /// The channels must outlive it.
    TwoLevelForm(Channels& channels, const Codec& codec, onebit_op_t op, std::size_t count);

    /// `messages`: as in Extras.
    void make_flat(FlatAllreduce::Extras extras, std::uint32_t* messages);
    /// Share of a rank's values in its node's average, or sum.
    float share_in_node() const { return share_of(op_, shards_.size()); }

    onebit_op_t op_;
    Channels& channels_;
    std::size_t place_;
    std::size_t nodes_;
    std::vector<Chunk> shards_; ///< by place
};

} // namespace onebit
