// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/phases/scatter_pieces.hpp"
#include "collectives/shards/shard_collective.hpp"

namespace onebit {

/// A reduce-scatter in pieces: the scatter of an allreduce, whose servers add up the received values and hand the sums
/// to the caller. In a checked compressed call nothing is handed over before all ranks have agreed: an overflow with
/// the error is seen only by the rank that encodes it, and by the one that gets it.
class ReduceScatterInPieces final : public Algorithm {
  public:
    /// Local. The codec must outlive it; `tag` and `tag` + 1 are its own on this channel.
    static Status create(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards, const Plan& plan,
                         int tag, std::unique_ptr<ReduceScatterInPieces>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override { return messages_.bytes() + phase_.workspace_bytes(); }
    Feedback& error() { return phase_.error().now(); }
    /// Decides what becomes of the error, where sums may overflow, which is looked at behind the stages.
    void settle(const Status& sums);

  private:
    /// A call's vote, if one is held, as the encoder casts it. Remembers an overflow of this rank's error.
    class OwnVote final : public Vote {
      public:
        void begin(Vote* all) {
            all_ = all;
            overflow_ = {};
        }
        bool doubt(const Slice& slice) override;
        void refuse(const Status& why) override;
        Status cast() override { return all_ == nullptr ? Status() : all_->cast(); }
        Status test(bool* known) override {
            *known = all_ == nullptr;
            return *known ? Status() : all_->test(known);
        }
        const Status& verdict() const override { return all_ == nullptr ? overflow_ : all_->verdict(); }
        bool is_held() const { return all_ != nullptr; }
        const Status& overflow() const { return overflow_; }

      private:
        Vote* all_ = nullptr;
        Status overflow_;
    };

    ReduceScatterInPieces(Transport& transport, const Codec& codec, const std::vector<Chunk>& shards, const Plan& plan);
    Status advance(Step* step);
    Status average_next(bool* did);
    void look_for_overflow(const Slice& slice);
    void finish();

    MessageLayout layout_;
    bool settles_later_; ///< when its sums have been looked at
    float share_;        ///< of a rank's values in the result
    AlignedBuffer<std::uint32_t> messages_;
    ScatterPhase phase_;
    Pieces pieces_;
    ScatterPieces scatter_;
    std::vector<Stage> stages_;

    // The call in flight.
    Operands operands_;
    OwnVote vote_;
    Status received_; ///< where no vote is held: what was wrong with a message
};

class ReduceScatter final : public ShardCollective {
  public:
    static Status create(Communicator& communicator, const onebit_shard_config_t* config, const Status& own,
                         std::unique_ptr<ReduceScatter>* reduce_scatter) {
        return create_kind(communicator, config, Kind::kReduceScatter, own, reduce_scatter);
    }
    ~ReduceScatter() override { close(); }
    ReduceScatter(const ReduceScatter&) = delete;
    ReduceScatter& operator=(const ReduceScatter&) = delete;

    /// plan().count floats.
    Status get_error(float* error);

  private:
    friend ShardCollective;
    using ShardCollective::ShardCollective;

    Status make_form(onebit_algorithm_t name) override;
    Status check_buffers(const void* input, const void* output) const override;
    void begin_call(const Status& own, const void* input, void* output) override;
    ErrorState error_state() const override;
    /// Without checks only some ranks are told of an overflow, and all go on.
    bool counts(const Status& status) const override { return status.ok() || plan_.check == ONEBIT_CHECK_NONE; }
    std::uint64_t dense_bytes() const override { return (plan_.count - own_shard().count) * elements_.bytes(); }

    ReduceScatterInPieces* compressed_ = nullptr; ///< the form, if there is one

    // Of the call in flight.
    CallerValues values_;
};

} // namespace onebit
