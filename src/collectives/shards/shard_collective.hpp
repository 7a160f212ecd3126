// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/operation/collective.hpp"
#include "compress/caller_values.hpp"
#include "compress/exact/exact_codec.hpp"

namespace onebit {

/// A collective between a whole buffer and its shards, one for each rank: what a reduce-scatter and an all-gather have
/// in common. Each has one algorithm, in pieces, by the handle's codec or by one that is exact.
class ShardCollective : public Collective {
  public:
    void fill_info(onebit_shard_info_t* info) const;

  protected:
    ShardCollective(Parts parts, Kind kind, std::vector<Chunk> shards);

    /// Makes one of the kind `Made`. Collective. `own`: what is already wrong on this rank, if anything.
    template <typename Made>
    static Status create_kind(Communicator& communicator, const onebit_shard_config_t* config, Kind kind,
                              const Status& own, std::unique_ptr<Made>* collective);

    const Chunk& own_shard() const { return shards_[static_cast<std::size_t>(channel_->rank())]; }
    /// The tags of a form's exchange, and of what trails behind it.
    static int tag_of(onebit_algorithm_t form) { return form == ONEBIT_ALGORITHM_DENSE ? 2 : 4; }
    /// Makes a form's algorithm; makes nothing if the form exists already, or if there can be none of that name.
    /// *compressed becomes the algorithm that isn't exact.
    template <typename InPieces>
    Status make_in_pieces(onebit_algorithm_t name, InPieces** compressed, std::unique_ptr<InPieces>* made);
    /// Adds a form. `behind`: as in add_form.
    void add(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm, std::vector<Stage> behind = {}) {
        add_form(name, std::move(algorithm), plan_.check == ONEBIT_CHECK_NONE ? 0 : 1, std::move(behind));
    }
    bool may_have(onebit_algorithm_t name) const override {
        return name == ONEBIT_ALGORITHM_DENSE || name == ONEBIT_ALGORITHM_PIPELINED;
    }
    const char* algorithm_names() const override { return "DENSE or _PIPELINED"; }
    /// Bytes that this rank sends in an exact call.
    virtual std::uint64_t dense_bytes() const = 0;

    std::vector<Chunk> shards_; ///< by rank
    ExactCodec exact_;
};

template <typename InPieces>
Status ShardCollective::make_in_pieces(onebit_algorithm_t name, InPieces** compressed,
                                       std::unique_ptr<InPieces>* made) {
    const bool exact = name == ONEBIT_ALGORITHM_DENSE;
    if (form(name).algorithm != nullptr || (!exact && name != plan_.compressed_algorithm)) return {};
    const Codec& codec = exact ? static_cast<const Codec&>(exact_) : *codec_;
    ONEBIT_RETURN_IF_ERROR(InPieces::create(*channel_, codec, shards_, plan_, tag_of(name), made));
    if (!exact) *compressed = made->get();
    return {};
}

template <typename Made>
Status ShardCollective::create_kind(Communicator& communicator, const onebit_shard_config_t* config, Kind kind,
                                    const Status& own, std::unique_ptr<Made>* collective) {
    ShardPlan plan;
    ONEBIT_RETURN_IF_ERROR(make_plan(communicator, config, kind, own, &plan));
    Parts parts;
    parts.plan = std::move(plan.plan);
    ONEBIT_RETURN_IF_ERROR(make_parts(communicator, &parts));
    ONEBIT_RETURN_IF_ERROR(communicator.make_room());
    const Entered entered(parts.backend);
    std::unique_ptr<Made> made;
    const Status ready = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(communicator.open_channel(&parts.channel));
        made.reset(new Made(std::move(parts), kind, std::move(plan.shards)));
        ONEBIT_RETURN_IF_ERROR(made->equip(communicator.environment()));
        return made->make_form(made->plan_.algorithm);
    });
    const Status agreed = communicator.agree(ready);
    if (made != nullptr && !communicator.usable()) made->break_off(agreed);
    ONEBIT_RETURN_IF_ERROR(agreed);
    *collective = std::move(made);
    return {};
}

} // namespace onebit
