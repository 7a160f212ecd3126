// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/forms/flat_pipelined.hpp"
#include "collectives/forms/lower_level.hpp"
#include "collectives/forms/shard_results.hpp"
#include "collectives/forms/sharded_form.hpp"
#include "collectives/selection/level_plan.hpp"
#include "collectives/selection/plan.hpp"
#include "numeric/elements.hpp"

namespace onebit {

/// The compressed allreduce on levels that the caller names, all of them by messages: inside the smallest groups first,
/// between the last groups last.
///
///     up      each level's ranks average their shards of what they bring, and bring these to the next level
///     across  the ranks that have the same shard of all groups: the flat form
///     down    each level's ranks hand each other the messages of their shards
///     decode  all ranks, all messages
///
/// With one exact level whose groups are the nodes the bits are TWO_LEVEL's.
class LevelsAllreduce final : public ShardedForm {
  public:
    /// Channels that only all ranks together can make: of each level, and across.
    struct Channels {
        std::array<std::unique_ptr<Transport>, kMostLevels + 1> of_level;

        void give_up(const Status& why);
    };
    /// Collective; every rank takes part in making all of them, whatever fails.
    static Status open_channels(Transport& channel, const LevelsPlan& plan, Channels* channels);

    /// Local. The channels must outlive it. `elements`: what the caller's values are. `sources`: there are calls
    /// without an input. Such a call takes each rank's share from the rank's source, and encodes the values that the
    /// source makes of the shares' mean.
    static Status create(Channels& channels, const Codec& codec, const Elements& elements, const Plan& plan,
                         const FlatAllreduce::Extras& extras, bool sources,
                         std::unique_ptr<LevelsAllreduce>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override;
    std::size_t workspace_bytes() const override;
    std::uint64_t bytes_sent() const override;

    Chunk shard() const override { return lower_.back()->shard(); }
    std::span<const LevelError> level_errors() const override { return errors_; }
    const Delivery& delivery() const { return *results_; }
    void set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard) override;

    void fill_info(std::size_t level, onebit_level_info_t* info) const;
    /// As many floats as the level's info says.
    void get_error(std::size_t level, float* error) const;

  private:
    /// The values that are encoded between the last groups.
    class GroupAverage final : public ValueSource {
      public:
        explicit GroupAverage(LevelsAllreduce& owner) : owner_(owner) {}
        BlockValues read(const Block& block, float*) const override;

      private:
        LevelsAllreduce& owner_;
    };

    LevelsAllreduce(Channels& channels, const Codec& codec, unsigned threads)
        : ShardedForm(codec), channels_(channels), threads_(threads), group_average_(*this) {}

    Transport& across() const { return *channels_.of_level[lower_.size()]; }
    /// Number of groups that the last level connects.
    std::size_t groups() const { return static_cast<std::size_t>(across().size()); }
    std::uint64_t bytes_across() const;

    Status make_levels(const Elements& elements, const Plan& plan);
    void lay_out_results(std::size_t rounds);
    /// Of a shard in a round.
    LowerLevel::Words messages_of(std::size_t shard, std::size_t round);
    Status plan_exchanges();
    void make_stages();
    /// The caller may still call the call off.
    bool awaits_commit() const { return operands_.tentative; }

    Status take_shares(Step* step);
    Status exchange_across(Step* step);
    Status check_results(Step* step);
    Status decode_results(Step* step);
    /// Resets all errors, unless the call may be called off; returns `why`.
    Status fail(const Status& why);

    Channels& channels_;
    std::vector<std::unique_ptr<LowerLevel>> lower_;
    std::vector<std::optional<onebit_codec_t>> codecs_; ///< by level, the last one across; none: exact
    std::vector<LevelError> errors_;                    ///< of the compressed levels
    std::vector<Chunk> shards_;                         ///< of the last of lower_, in order, of all ranks
    std::size_t own_ = 0;                               ///< which of these is this rank's
    AlignedBuffer<std::uint32_t> messages_;             ///< of all shards, one after the other
    std::vector<std::size_t> first_words_;              ///< by shard, and one past the last; of one round alone
    std::size_t rounds_ = 1;
    std::optional<ShardResults> results_;
    std::unique_ptr<PipelinedFlat> between_groups_;
    AlignedBuffer<float> shares_; ///< this rank's, in calls without an input; empty without `sources`
    ArraySource shares_source_;
    unsigned threads_;
    GroupAverage group_average_;
    std::vector<Stage> stages_;

    // The call in flight.
    Operands operands_;
    StageRunner inner_;
    SliceCursor cursor_;      ///< of shares, then of results
    std::size_t decoded_ = 0; ///< shards
};

} // namespace onebit
