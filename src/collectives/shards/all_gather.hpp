// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/phases/gather_pieces.hpp"
#include "collectives/shards/shard_collective.hpp"

namespace onebit {

/// An all-gather in pieces: the second half of an allreduce, in which each rank encodes its shard of the caller's
/// values instead of an average.
class AllGatherInPieces final : public Algorithm {
  public:
    /// Local. The codec must outlive it; `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards, const Plan& plan,
                         int tag, std::unique_ptr<AllGatherInPieces>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override { return messages_.bytes() + phase_.error().workspace_bytes(); }
    Feedback& error() { return phase_.error().now(); }

  private:
    AllGatherInPieces(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards, const Plan& plan);
    Status advance(Step* step);
    Status encode_next(bool* did);
    void finish(const Status& verdict);

    MessageLayout layout_;
    AlignedBuffer<std::uint32_t> messages_;
    GatherPhase phase_;
    Pieces pieces_;
    GatherPieces gather_;
    std::vector<Stage> stages_;
    Operands operands_; ///< of the call in flight
};

class AllGather final : public ShardCollective {
  public:
    static Status create(Communicator& communicator, const onebit_shard_config_t* config, const Status& own,
                         std::unique_ptr<AllGather>* all_gather) {
        return create_kind(communicator, config, Kind::kAllGather, own, all_gather);
    }
    ~AllGather() override { close(); }
    AllGather(const AllGather&) = delete;
    AllGather& operator=(const AllGather&) = delete;

    /// As many floats as this rank's shard has.
    Status get_error(float* error);

  private:
    friend ShardCollective;
    using ShardCollective::ShardCollective;

    Status make_form(onebit_algorithm_t name) override;
    Status check_buffers(const void* input, const void* output) const override;
    void begin_call(const Status& own, const void* input, void* output) override;
    ErrorState error_state() const override;
    std::uint64_t dense_bytes() const override { return own_shard().count * (shards_.size() - 1) * elements_.bytes(); }

    AllGatherInPieces* compressed_ = nullptr; ///< the form, if there is one

    // Of the call in flight.
    CallerValues values_;
};

} // namespace onebit
