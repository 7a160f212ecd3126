// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator/agreement.hpp"
#include "collectives/communicator/costs.hpp"
#include "collectives/communicator/node_groups.hpp"
#include "collectives/communicator/shared_buffers.hpp"
#include "collectives/communicator/tuning_table.hpp"
#include "core/config.hpp"
#include "core/log.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The part of the version that libraries must share for their ranks to work together: all but the patch level.
constexpr std::uint64_t version_to_agree_on(int number) {
    return static_cast<std::uint64_t>(number / 100);
}

/// A group of ranks: the transport between them and what the environment said when the communicator was made. Handles
/// made from it open channels of their own, and so outlive it.
class Communicator {
  public:
    /// Reads the environment. Collective over the transport's ranks: a bad variable, or `own`, on one rank fails on
    /// all. MISMATCH where the ranks' libraries are of different versions. `timeout`: if not 0, replaces the
    /// environment's.
    static Status create(std::unique_ptr<Transport> transport, const Status& own,
                         std::unique_ptr<Communicator>* communicator, double timeout = 0);

    /// The same without a message to the other ranks, for ranks that share one environment.
    static Status create_local(std::unique_ptr<Transport> transport, std::unique_ptr<Communicator>* communicator);

    /// A communicator of the ranks that come with the same color, in the order of their keys, and of their ranks where
    /// keys are equal; none, and SUCCESS, for a rank whose color is negative. With the settings, nodes and tuning table
    /// of this one. Collective; blocks; fails on all ranks alike. `own`: this rank's part so far.
    Status split(int color, int key, const Status& own, std::unique_ptr<Communicator>* part);

    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    const Transport& transport() const { return *transport_; }
    const Environment& environment() const { return environment_; }
    /// Where rank 0's lines go.
    Log log() const { return {rank() == 0, environment_.log}; }
    int rank() const { return transport_->rank(); }
    int size() const { return transport_->size(); }
    /// Which ranks share a node, or are to count as one (ONEBIT_NODE_SIZE).
    const NodeGroups& groups() const { return groups_; }

    /// The time that a call of each form is expected to take between these ranks, once known; the same on every rank.
    /// know_costs (selection/estimates.hpp) makes it known.
    bool knows_costs(onebit_memory_t memory, onebit_codec_t codec) const { return costs_[memory][codec].has_value(); }
    KnownCosts& costs(onebit_memory_t memory, onebit_codec_t codec) { return *costs_[memory][codec]; }
    void set_costs(onebit_memory_t memory, onebit_codec_t codec, KnownCosts costs) {
        costs_[memory][codec] = std::move(costs);
    }
    /// Whether calls can be measured here.
    bool measurable() const { return measurable_; }
    /// What ONEBIT_TUNING names, if anything.
    const TuningTable& tuning_table() const { return tuning_table_; }

    /// As if an environment variable had been `value` when the communicator was created. Collective; blocks; on failure
    /// nothing changes on any rank.
    Status set(const char* name, const char* value);

    /// What was allocated for values and results of its handles; the handles keep it, too.
    const std::shared_ptr<SharedBuffers>& shared_buffers() const { return shared_buffers_; }

    /// False once an agreement was not reached.
    bool usable() const { return broken_.ok(); }

    /// How long calls wait.
    const Patience& patience() const { return patience_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return patience_.abort_switch; }

    /// `status`: how this rank's part in a collective call ended. A TIMEOUT breaks the communicator, which spares this
    /// call, and the other ranks, a second wait. Any other status is left as it is, for an agreement.
    Status give_up_if_lost(const Status& status);

    /// Every rank brings its own status and gets the common one. Collective; blocks. The words as in Agreement::begin.
    Status agree(const Status& own, std::uint32_t word = 0, std::uint64_t value = 0,
                 std::array<const char*, 2> what = {});

    /// The same, and `bytes` of every rank are gathered, in rank order, in `all` (size() * bytes). `bytes` is the same
    /// on every rank and a multiple of 4.
    Status agree_and_gather(const Status& own, const void* mine, std::size_t bytes, void* all);

    /// Makes sure, if possible, that there are tags for a channel with so many tags, and for one of its nodes.
    /// Collective, behind an agreement. Blocks where ranks have to tell each other which tags they hold. Needs no
    /// memory after the last message.
    Status make_room(int tags = kFewTags);
    /// A new channel between the same ranks. Collective.
    Status open_channel(std::unique_ptr<Transport>* channel, int tags = kFewTags);
    /// The first channel of a part of all ranks: with an abort switch and tags of its own, for another communicator.
    /// Collective; blocks; ends with an agreement.
    Status open_part(std::unique_ptr<Transport>* channel);
    /// A channel of this rank's node, for values in a GPU's memory. As open_channel.
    Status open_node_channel(std::unique_ptr<Transport>* channel);

    /// Why this transport, in words; "" where it is what the program asked for.
    const std::string& reason() const { return reason_; }
    void set_reason(std::string reason) { reason_ = std::move(reason); }

  private:
    Communicator() = default;
    /// Makes a communicator that can agree. Local. If it fails, the transport stays the caller's.
    static Status make(std::unique_ptr<Transport>* transport, std::unique_ptr<Communicator>* communicator);

    /// What a rank says when its communicator is split.
    struct Wish {
        int color = 0;
        int key = 0;
    };
    Status make_room_for_part();
    /// Asks all ranks which tags they hold, and frees the others. Collective, behind an agreement; blocks.
    Status reclaim_tags();
    /// A part of the ranks `members` of this communicator, in this order. Collective over all of its ranks, because
    /// tags are taken first; else local.
    Status make_part(const std::vector<int>& members, std::unique_ptr<Communicator>* part);

    /// What the ranks tell each other at creation. Collective; blocks; ends with an agreement.
    Status meet(const Status& own, double timeout);
    /// Reads this rank's environment.
    Status look_at_environment(double timeout = 0);

    /// From every rank's node_identity().
    Status find_groups(const std::vector<std::uint64_t>& identities);

    /// Rank 0's tuning table, if `name` (ONEBIT_TUNING) names one there; it need not exist elsewhere. Collective;
    /// blocks; ends with an agreement.
    Status share_tuning_table(const std::string& name, TuningTable* table);

    /// Keeps what made the communicator unusable: an unfinished exchange would collide with the next one.
    Status remember(const Status& status);

    std::unique_ptr<Transport> transport_;
    std::string reason_;
    Environment environment_;
    Patience patience_;
    NodeGroups groups_;
    TuningTable tuning_table_;
    bool measurable_ = false;
    std::array<std::array<std::optional<KnownCosts>, kCodecs>, kMemories> costs_; ///< by memory and codec
    std::shared_ptr<SharedBuffers> shared_buffers_ = std::make_shared<SharedBuffers>();
    std::unique_ptr<Agreement> agreement_;
    Status broken_;
};

} // namespace onebit
