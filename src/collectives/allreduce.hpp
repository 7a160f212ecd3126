// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "collectives/call/delivery.hpp"
#include "collectives/forms/flat.hpp"
#include "collectives/forms/flat_pipelined.hpp"
#include "collectives/forms/levels.hpp"
#include "collectives/forms/power_sgd.hpp"
#include "collectives/forms/sharded_form.hpp"
#include "collectives/forms/two_level_form.hpp"
#include "collectives/operation/collective.hpp"
#include "collectives/sums/direct_sum.hpp"
#include "compress/caller_values.hpp"
#include "core/hash.hpp"

namespace onebit {

/// What an optimizer needs from its allreduces besides.
struct AllreduceUses {
    bool keep_results = false;    ///< as in FlatAllreduce::Extras
    bool tentative_calls = false; ///< likewise
    bool exact_sums = false;      ///< run_sum is going to be called
    bool sources = false;         ///< calls read a source in the place of a buffer
};

/// A persistent allreduce: the forms that its plan may use, masks, and what optimizers ask of it.
class Allreduce final : public Collective {
  public:
    /// `own`: what is already wrong on this rank, if anything. `why`: as for make_plan.
    static Status create(Communicator& communicator, const onebit_allreduce_config_t* config, const Status& own,
                         std::unique_ptr<Allreduce>* allreduce, const AllreduceUses& uses = {},
                         const char* why = nullptr);
    ~Allreduce() override;
    Allreduce(const Allreduce&) = delete;
    Allreduce& operator=(const Allreduce&) = delete;

    // What optimizers call, whatever the algorithm is set to. The handle must be idle and have ONEBIT_CHECK_NONE.

    /// The compressed average, which delivery().last_result then has; the handle must be able to compress.
    /// `number`: of the caller's own call, as in Operands.
    Status run_compressed(std::uint64_t number, const ValueSource& source);
    /// Begins the same as a tentative call, which changes nothing unless commit() is called. `source` as in Operands.
    void start_tentative(std::uint64_t number, const ValueSource* source);
    void commit();
    /// The exact sum over the ranks (not the average), in place. `values`: aligned as the floats of an AlignedBuffer.
    Status run_sum(float* values);
    /// The same without waiting: plan_sum plans for `values` (NULL: for none), start_sum starts. Planning is local.
    Status plan_sum(float* values);
    bool has_planned_sum() const { return direct_sum_ != nullptr; }
    /// Makes what run_sum works with. It exists from the start where exact_sums were asked for. On a GPU it takes twice
    /// the values' size. drop_sums frees it. Local.
    Status make_sums();
    void drop_sums();
    void start_sum();

    /// `own`: what is already wrong on this rank, if anything.
    Status set_mask(const std::uint32_t* mask, const Status& own = {});
    /// The same in two parts without an agreement between them, for callers that agree on more than a mask. make_mask
    /// does all that needs memory; take_mask does all that changes the handle. Local.
    struct Mask {
        AlignedBuffer<std::uint32_t> words;    ///< none: all elements take part
        AlignedBuffer<std::uint32_t> placed;   ///< where values are not on the host
        AlignedBuffer<std::uint32_t> of_shard; ///< of this rank's shard, if it has one
        std::uint64_t hash() const { return hash_bytes(words.data(), words.bytes()); }
    };
    Status make_mask(const std::uint32_t* words, Mask* mask) const;
    Status take_mask(Mask mask);
    void fill_info(onebit_allreduce_info_t* info) const;
    /// Of each level, too.
    void tell(const Communicator& communicator, const char* collective) const override;
    /// The algorithm that has that level. INVALID_ARGUMENT where there is no such level, BUSY. Local.
    Status find_level(std::size_t level, const LevelsAllreduce** levels);
    /// For a handle that compresses, except on two levels of a GPU's values.
    const Delivery& delivery() const { return *delivery_; }
    /// For a handle that compresses and is flat.
    const FlatAllreduce& flat() const { return *flat_; }

  private:
    Allreduce(Parts parts, const AllreduceUses& uses) : Collective(std::move(parts)), uses_(uses) {}

    Status check_buffers(const void* input, const void* output) const override;
    void begin_call(const Status& own, const void* input, void* output) override;
    ErrorState error_state() const override;
    Status make_form(onebit_algorithm_t name) override {
        return name == ONEBIT_ALGORITHM_DENSE ? make_sums() : Status();
    }
    bool may_have(onebit_algorithm_t name) const override {
        const bool of_levels = name == ONEBIT_ALGORITHM_LEVELS;
        if (levels_ != nullptr) return of_levels || name <= ONEBIT_ALGORITHM_DENSE;
        return !of_levels && (!plan_.averages_factors() || name <= ONEBIT_ALGORITHM_FLAT);
    }
    const char* algorithm_names() const override {
        if (levels_ != nullptr) return "DENSE or _LEVELS";
        return plan_.averages_factors() ? "DENSE or _FLAT" : "DENSE, _FLAT, _PIPELINED, _TWO_LEVEL, _BRUCK or _RING";
    }
    std::array<Transport*, 2> other_channels() const override;
    void give_up_others(const Status& why) override {
        channels_.give_up(why);
        level_channels_.give_up(why);
    }

    Status share_memory(Communicator& communicator, std::unique_ptr<TwoLevelForm::Channels> channels);
    Status open_two_levels(Communicator& communicator, TwoLevelForm::Channels* channels);
    Status allocate(const Environment& environment);
    FlatAllreduce::Extras extras() const;
    Status add_pipelined(onebit_algorithm_t name, PipelinedFlat::Way way, int tag);
    Status add_two_levels();
    Status add_dense();
    void add(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm);
    bool masked() const { return sharded_ == nullptr ? !flat_->mask().empty() : sharded_->masked(); }
    Status add_power_sgd();
    Status add_levels();
    /// Of the whole buffer, or of this rank's shard.
    FlatAllreduce& inner_flat() const { return sharded_ == nullptr ? *flat_ : sharded_->flat(); }

    AllreduceUses uses_;
    TwoLevelForm::Channels channels_; ///< of the two-level form; exact sums in shared memory use `memory` alone
    std::shared_ptr<const SharedBuffers> shared_buffers_; ///< where the program's values may lie
    std::unique_ptr<FlatAllreduce> flat_;
    std::unique_ptr<DirectSum> direct_sum_;
    LevelsAllreduce::Channels level_channels_;
    ShardedForm* sharded_ = nullptr;    ///< this one of the forms, if there is one
    LevelsAllreduce* levels_ = nullptr; ///< likewise
    PowerSgd* power_sgd_ = nullptr;     ///< likewise
    const Delivery* delivery_ = nullptr;

    // Of the call in flight.
    CallerValues values_;
};

} // namespace onebit
