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
/// The shards' messages lie there too. All of this goes on at the same time, a slice of a shard at a time: slice number
/// t is piece t / N of chunk t % N, in the order in which the flat form encodes them. Ranks of a node meet through
/// memory alone. Each has a segment: counters of how far it has come in all calls together, slots for values, its
/// shard's messages. It shares slice t of every other rank's shard through a slot; that rank encodes the average when
/// all have shared theirs, and the slot is free again. Where all see each other's values (SharedOperands), each encodes
/// the average of what lies there, and there is nothing to share: a rank reads and writes 14 bytes per float instead
/// of 18 (two nodes of two ranks). A rank begins a call only when it is done with the last one, so what it shares also
/// says that nothing of the last call is needed any more. A neighbour that has left is not noticed but by its silence.
///
/// A call without an input shares what its source reads, and may want its results kept: the ranks of a node read them
/// from each other's messages, which nobody overwrites before all have come to the next call.
class TwoLevelAllreduce final : public TwoLevelForm {
  public:
    /// Collective; may block. OUT_OF_MEMORY where some node has none to share, UNSUPPORTED where it can't; on which
    /// ranks, the caller must agree on.
    static Status open_channels(Transport& channel, Communicator& communicator, const Codec& codec,
                                const Elements& elements, const Plan& plan, std::size_t rounds, Channels* channels);

    /// Local. The channels must outlive it. The four tags from `tag` on are its own on the channel across. `buffers`:
    /// where values may lie that all ranks of the node see. `elements`: what they are. `extras`: with as many rounds as
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

    /// A tentative call's vote, as the exchange between nodes needs it. A rank votes on no more than it has seen: the
    /// values of its own shard there, those of the others when it shares them, or when their owners say that
    /// they have made a NaN or an infinity of some.
    class ShardVote final : public Vote {
      public:
        explicit ShardVote(TwoLevelAllreduce& owner) : owner_(owner) {}
        bool doubt(const Slice& slice) override { return owner_.doubt_own(slice); }
        void refuse(const Status& why) override { owner_.operands_.vote->refuse(why); }
        /// cast_vote does, once all is shared, too. The exchange of a shard without elements is over at once: what it
        /// commits has none either.
        Status cast() override { return {}; }
        Status test(bool* known) override { return owner_.operands_.vote->test(known); }
        const Status& verdict() const override { return owner_.operands_.vote->verdict(); }

      private:
        TwoLevelAllreduce& owner_;
    };

    TwoLevelAllreduce(Channels& channels, std::shared_ptr<const SharedBuffers> buffers, const Codec& codec,
                      const Elements& elements, const Plan& plan, const FlatAllreduce::Extras& extras);

    /// For slice number `slice`, counted over all calls, of the reader's shard; the reader is another than the owner.
    std::byte* slot(std::size_t owner, std::size_t reader, std::size_t slice) const;
    std::uint32_t* messages_of(std::size_t place) const;
    /// Slice number `slice` of a shard.
    Slice slice_of(std::size_t place, std::size_t slice) const;

    /// A slice of a shard is not finite. As Vote::doubt.
    bool doubt(std::size_t place, Slice slice);
    /// The average of a slice of this rank's is not.
    bool doubt_own(const Slice& slice);
    bool seen_all() const;
    Status cast_vote();

    Status advance(Step* step);
    void share_next(bool* did);
    void share(std::size_t reader, const Slice& slice, std::byte* slot);
    void share_all(bool* did);
    Status exchange_between_nodes(bool* did);
    Status decode_next(bool* did);

    /// The call may yet be called off by who has asked for it.
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
    std::uint64_t least_encoded_ = 0;  ///< by the last of the node's ranks, when last looked at
    std::vector<std::size_t> decoded_; ///< by place: slices
    bool voted_ = false;
    Status verdict_;
    std::vector<Stage> stages_;
};

} // namespace onebit
