// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/agreement.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/call_check.hpp"
#include "collectives/communicator.hpp"
#include "collectives/direct_sum.hpp"
#include "collectives/flat.hpp"
#include "collectives/flat_pipelined.hpp"
#include "collectives/placement.hpp"
#include "collectives/plan.hpp"
#include "collectives/stages.hpp"
#include "collectives/two_level_form.hpp"
#include "core/hash.hpp"

namespace onebit {

/// A persistent allreduce: a plan, a channel, the algorithms that the plan may use, and the operation in flight.
/// onebit.h says what each call means; a method here is one call of the C API. Used by one thread at a time.
class Allreduce {
  public:
    /// `own`: what is already wrong on this rank, if anything.
    static Status create(Communicator& communicator, const onebit_allreduce_config_t* config, const Status& own,
                         std::unique_ptr<Allreduce>* allreduce, FlatAllreduce::Extras extras = {});
    ~Allreduce();
    Allreduce(const Allreduce&) = delete;
    Allreduce& operator=(const Allreduce&) = delete;

    /// Whatever a thread calls here, it calls while it holds one of these.
    Entered enter() const { return Entered(placement_); }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return patience_.abort_switch; }

    Status run(const void* input, void* output);
    Status start(const void* input, void* output);

    // What optimizers call, whatever the algorithm is set to; of a handle that is idle and has ONEBIT_CHECK_NONE.

    /// The compressed average, which flat().last_result then has; the handle must be able to compress, and be flat.
    Status run_compressed(const ValueSource& source);
    /// Begins the same as a tentative call: it changes nothing until commit(), and nothing at all without it. `source`
    /// as in Operands.
    void start_tentative(const ValueSource* source);
    void commit();
    /// The exact sum over the ranks (not the average), in place; aligned as the floats of an AlignedBuffer.
    Status run_sum(float* values);
    /// The same without waiting, of values that were planned for; NULL: for none any more. Planning is local.
    Status plan_sum(float* values);
    bool has_planned_sum() const { return direct_sum_ != nullptr; }
    /// What run_sum works with, from the start where exact_sums were asked for. On a GPU it is twice the values' size.
    /// drop_sums gives it back. Local.
    Status make_sums();
    void drop_sums();
    void start_sum();

    Status test(bool* done);
    Status wait();
    /// As test, but how the operation ended is still to be told by a test or a wait. Always a success.
    Status move_on(bool* done);
    UnderWay under_way() const;
    /// One step of the operation in flight; it ends when all stages are done or one failed.
    Status advance(Step* step);
    bool in_flight() const { return in_flight_; }
    /// The operation in flight will never be finished, for this reason; returns it, with the ranks that have not
    /// answered.
    Status abandon(const Status& why);
    /// The same, where it is known already who has not answered.
    void break_off(const Status& why);
    /// How long its calls wait.
    const Patience& patience() const { return patience_; }
    /// What made the handle unusable, if anything did.
    const Status& broken() const { return broken_; }

    /// Before the settings or the error state are touched: BUSY while a started operation is not finished, UNSUPPORTED
    /// while the stream is captured; what broke the handle, if it is broken. A run that has returned before its end
    /// comes to it here; how it ended is still told by the next run, start or wait: this is called on one rank alone,
    /// too.
    Status check_idle();
    Status check_not_broken() const;
    /// BUSY while a started operation is not finished, unless it never will be; UNSUPPORTED where a captured stream
    /// can't be asked.
    Status check_destroyable() const;

    Status set_algorithm(onebit_algorithm_t algorithm);
    /// `own`: what is already wrong on this rank, if anything.
    Status set_mask(const std::uint32_t* mask, const Status& own = {});
    /// The same in two parts, without an agreement between them, for who agrees on more than a mask: all that needs
    /// memory, and all that changes the handle. Local.
    struct Mask {
        AlignedBuffer<std::uint32_t> words;    ///< none: all elements take part
        AlignedBuffer<std::uint32_t> placed;   ///< where they don't lie on the host
        AlignedBuffer<std::uint32_t> of_shard; ///< on two levels
        std::uint64_t hash() const { return hash_bytes(words.data(), words.bytes()); }
    };
    Status make_mask(const std::uint32_t* words, Mask* mask) const;
    Status take_mask(Mask mask);
    Status reset();
    void fill_info(onebit_allreduce_info_t* info) const;

    /// Whether the handle can compress. One that can't is dense for good: its error is always zero.
    bool compresses() const { return plan_.compresses(); }
    const FlatAllreduce& flat() const { return *flat_; }
    const Codec& codec() const { return *codec_; }
    /// The chunk whose server error this rank has; empty for a dense handle.
    Chunk server_chunk() const;

    /// Copies the errors to where a pointer is not NULL: plan().count and server_chunk().count floats.
    Status get_error(float* worker, float* server);
    /// What part of the worker error this rank has: all, or a shard; empty for a dense handle.
    Chunk worker_part() const;
    /// The state of a handle that compresses: errors of worker_part() and server_chunk(), and, to replace it, the
    /// number of calls that led to them. A GPU that fails to take it breaks the handle.
    void get_state(float* worker, float* server) const;
    Status set_state(const float* worker, const float* server, std::uint64_t calls);
    std::uint64_t calls() const { return calls_; }
    /// Of the mask's words, as set_mask agreed on it; 0 where there was none yet.
    std::uint64_t mask_hash() const { return mask_hash_; }

    const Plan& plan() const { return plan_; }
    /// Of an exchange on its channel that others plan.
    static constexpr int kSpareTag = kFewTags - 1;
    Transport& channel() { return *channel_; }
    const Transport& channel() const { return *channel_; }
    /// By this rank to others, whatever for and whichever way.
    std::uint64_t bytes_sent() const;

    /// Every rank comes with its own status, and two words that must be the same everywhere, and leaves with the common
    /// verdict. Collective; blocks. `meanwhile`: as for decide_now.
    Status agree_now(const Status& own, std::uint32_t word = 0, std::uint64_t value = 0,
                     std::array<const char*, 2> what = {}, const std::function<Status(bool*)>& meanwhile = {});
    /// Likewise, but the words may differ, and every rank gets to know all of them. Collective; blocks.
    Status gather_now(const Status& own, const Told& mine, std::vector<Told>* all);
    /// Whether all ranks came to the last agreement with the same word, whatever the verdict.
    bool agreed_on_word() const { return agreement_->same_word(); }

  private:
    Allreduce(Plan plan, std::shared_ptr<const Placement> placement, std::unique_ptr<Transport> channel,
              std::unique_ptr<Codec> codec, Patience patience)
        : plan_(std::move(plan)),
          placement_(std::move(placement)),
          channel_(std::move(channel)),
          patience_(std::move(patience)),
          codec_(std::move(codec)) {}

    /// A way of averaging that the plan may use, and what a call of it comes to.
    struct Form {
        std::unique_ptr<Algorithm> algorithm;
        std::vector<Stage> stages;
    };

    Status share_memory(Communicator& communicator, std::unique_ptr<TwoLevelForm::Channels> channels);
    Status open_two_levels(Communicator& communicator, TwoLevelForm::Channels* channels);
    Status add_pipelined(onebit_algorithm_t name, PipelinedFlat::Way way, int tag);
    Status add_two_levels();
    Status allocate(const Environment& environment, FlatAllreduce::Extras extras);
    Status add_dense();
    void add_form(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm);
    Form& form(onebit_algorithm_t name) { return forms_[static_cast<std::size_t>(name)]; }
    Status begin(const void* input, void* output);
    void begin(onebit_algorithm_t algorithm, const Operands& operands);
    void begin(std::span<const Stage> stages, const Operands& operands);
    Status check_finished() const;
    Status check_may_go_on() const;
    Status go_on_until(Step last);
    Status look_at_channels();
    Status tell_outcome();
    Status finish(const Status& status);
    /// For what comes after an agreement: where it fails on this rank alone, the handle is broken.
    template <typename Body>
    Status commit(const Body& body) {
        const Status status = catch_exceptions(body);
        return status.ok() ? status : abandon(status);
    }
    /// What holds the error state, if there is one, and where in the buffer it begins: two levels have a shard's.
    FlatAllreduce* state() { return two_level_ == nullptr ? flat_.get() : &two_level_->flat(); }
    const FlatAllreduce* state() const { return const_cast<Allreduce*>(this)->state(); }
    bool masked() const { return two_level_ == nullptr ? !flat_->mask().empty() : two_level_->masked(); }

    Plan plan_;
    std::shared_ptr<const Placement> placement_;
    std::unique_ptr<Transport> channel_;
    Patience patience_;
    std::unique_ptr<Codec> codec_;
    std::unique_ptr<Search> search_; ///< for values that are not finite
    std::unique_ptr<Agreement> agreement_;
    std::unique_ptr<CallCheck> check_;
    TwoLevelForm::Channels channels_; ///< of the two-level form; of exact sums in shared memory that alone
    std::shared_ptr<const SharedBuffers> shared_buffers_; ///< where the program's values may lie
    std::unique_ptr<FlatAllreduce> flat_;
    std::unique_ptr<DirectSum> direct_sum_;
    std::array<Form, kAlgorithms> forms_; ///< by onebit_algorithm_t; none for AUTO
    TwoLevelForm* two_level_ = nullptr;   ///< the one among them, if it is

    // The operation in flight.
    bool in_flight_ = false;
    bool refused_here_ = false;     ///< by this rank: its buffers, or its stream
    bool returned_ = false;         ///< it is a run that has returned already: what is left is to be told how it ended
    std::optional<Status> outcome_; ///< of one that is finished but not told of
    StageRunner runner_;
    Operands operands_;
    ArraySource array_source_;
    ArraySink array_sink_;
    std::uint64_t bytes_before_ = 0;

    Status broken_; ///< what made the handle unusable, if anything did
    std::uint64_t calls_ = 0;
    std::uint64_t mask_hash_ = 0;
    std::uint64_t last_bytes_sent_ = 0;
};

} // namespace onebit
