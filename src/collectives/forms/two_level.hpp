// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/call/delivery.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "collectives/forms/flat_pipelined.hpp"
#include "collectives/forms/shard_results.hpp"
#include "collectives/forms/two_level_form.hpp"
#include "collectives/selection/plan.hpp"
#include "collectives/sums/shared_counters.hpp"
#include "collectives/sums/shared_operands.hpp"
#include "numeric/elements.hpp"

namespace onebit {

/// Two levels through memory that the ranks of a node share.
///
/// The shards' messages lie there too. All steps go on at the same time, a slice of a shard at a time. Slice number t
/// is piece t / N of chunk t % N, in the order in which the flat form encodes them. Ranks of a node meet through memory
/// alone. Each has a segment: counters of how far it has come in all calls together, slots for values, its shard's
/// messages. It shares slice t of every other rank's shard through a slot. That other rank encodes the average when all
/// have shared their values; then the slot is free again. Where all ranks see each other's values (SharedOperands),
/// each encodes the average of the values where they lie, and there is nothing to share: a rank reads and writes 14
/// bytes per float instead of 18 (two nodes of two ranks). A rank begins a call only when it is done with the last one.
/// So a slice that it shares also says that it needs nothing of the last call any more. A neighbour that has left is
/// noticed only by its silence.
///
/// A call without an input shares the values that its source reads, and may want its results kept. The ranks of a node
/// read results from each other's messages. No rank overwrites these before all have come to the next call.
class TwoLevelAllreduce final : public TwoLevelForm {
  public:
    /// Collective; may block. OUT_OF_MEMORY where some node has no memory to share, UNSUPPORTED where it can't share
    /// any. Ranks may differ in this: the caller must let them agree.
    static Status open_channels(Transport& channel, Communicator& communicator, const Codec& codec,
                                const Elements& elements, const Plan& plan, std::size_t rounds, Channels* channels);

    /// Local. The channels must outlive it. The four tags from `tag` on are its own on the channel across. `buffers`:
    /// memory for values that all ranks of the node see. `elements`: of these values. `extras`: with as many rounds as
    /// the channels were opened for.
    static Status create(Channels& channels, std::shared_ptr<const SharedBuffers> buffers, const Codec& codec,
                         const Elements& elements, const Plan& plan, const FlatAllreduce::Extras& extras, int tag,
                         std::unique_ptr<TwoLevelAllreduce>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;

    std::size_t workspace_bytes() const override;
    const char* way() const override { return shared_values_.all_see() ? ", shared buffers" : ""; }

    const Delivery& delivery() const { return results_; }

  private:
    /// How far a rank has come.
    enum Counter : std::size_t { kShared, kEncoded, kArrived, kDoubted, kCounters };

    static constexpr std::size_t kSlotsBegin = SharedCounters::bytes(kCounters) + SharedOperands::shared_bytes();

    /// Where things lie in a segment.
    struct Layout {
        Layout(const Codec& codec, const Elements& elements, const std::vector<Chunk>& shards, std::size_t nodes,
               std::size_t piece_blocks, std::size_t rounds);
        std::size_t slot_elements; ///< of a slot: a piece
        std::size_t messages_at;   ///< in bytes
        std::size_t bytes;         ///< of the segment
    };

    /// The average of the node's values.
    class NodeAverage final : public ValueSource {
      public:
        explicit NodeAverage(TwoLevelAllreduce& owner) : owner_(owner) {}
        BlockValues read(const Block& block, float* scratch) const override;

      private:
        /// Where the block's values of the rank in this place lie.
        const void* part_of(std::size_t place, const Block& block) const;

        TwoLevelAllreduce& owner_;
    };

    /// A tentative call's vote, as the exchange between nodes needs it. A rank votes only on values that it has seen:
    /// those of its own shard in this exchange, those of other shards when it shares them, or when the shards' owners
    /// say that some of them made a NaN or an infinity.
    class ShardVote final : public Vote {
      public:
        explicit ShardVote(TwoLevelAllreduce& owner) : owner_(owner) {}
        bool doubt(const Slice& slice) override { return owner_.doubt_own(slice); }
        void refuse(const Status& why) override { owner_.operands_.vote->refuse(why); }
        /// cast_vote casts it, once all is shared, too. The exchange of a shard without elements is over at once, but
        /// commits no elements.
        Status cast() override { return {}; }
        Status test(bool* known) override { return owner_.operands_.vote->test(known); }
        const Status& verdict() const override { return owner_.operands_.vote->verdict(); }

      private:
        TwoLevelAllreduce& owner_;
    };

    TwoLevelAllreduce(Channels& channels, std::shared_ptr<const SharedBuffers> buffers, const Codec& codec,
                      const Elements& elements, const Plan& plan, const FlatAllreduce::Extras& extras);

    /// For slice number `slice`, counted over all calls, of the reader's shard; the reader isn't the owner.
    std::byte* slot(std::size_t owner, std::size_t reader, std::size_t slice) const;
    std::uint32_t* messages_of(std::size_t place) const;
    /// Slice number `slice` of a shard.
    Slice slice_of(std::size_t place, std::size_t slice) const;

    /// A slice of a shard is not finite. As Vote::doubt.
    bool doubt(std::size_t place, Slice slice);
    /// The average of a slice of this rank's shard is not finite.
    bool doubt_own(const Slice& slice);
    bool seen_all() const;
    Status cast_vote();

    Status advance(Step* step);
    void share_next(bool* did);
    void share(std::size_t reader, const Slice& slice, std::byte* slot);
    void share_all(bool* did);
    Status exchange_between_nodes(bool* did);
    Status decode_next(bool* did);

    /// The caller may still call the call off.
    bool awaits_commit() const { return operands_.tentative && operands_.vote == nullptr; }

    Elements elements_;
    std::size_t count_;
    unsigned threads_;
    std::size_t piece_blocks_;
    Layout layout_;
    SharedCounters counters_;
    SharedOperands shared_values_;
    Stores stores_ = stores_for_other_cores(); ///< how slots are filled
    std::size_t pieces_;                       ///< of the longest chunk of the longest shard
    std::unique_ptr<PipelinedFlat> between_nodes_;
    NodeAverage node_average_;
    ShardVote shard_vote_;
    ShardResults results_;
    std::function<bool()> ready_;

    // The call in flight.
    Operands operands_;
    StageRunner inner_;
    std::uint64_t calls_ = 0; ///< before this one: what the counters began with
    bool begun_ = false;
    std::size_t shared_ = 0;           ///< slices
    std::uint64_t least_encoded_ = 0;  ///< by the slowest of the node's ranks, when last read
    std::vector<std::size_t> decoded_; ///< by place: slices
    bool voted_ = false;
    Status verdict_;
    std::vector<Stage> stages_;
};

} // namespace onebit
