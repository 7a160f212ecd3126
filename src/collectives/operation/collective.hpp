// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "collectives/call/error_state.hpp"
#include "collectives/call/stages.hpp"
#include "collectives/communicator/agreement.hpp"
#include "collectives/communicator/communicator.hpp"
#include "collectives/operation/memory_backend.hpp"
#include "collectives/operation/preflight.hpp"
#include "collectives/selection/plan.hpp"
#include "numeric/elements.hpp"

namespace onebit {

/// A persistent collective: a plan, a channel, the algorithms that the plan may use, and the operation in flight. What
/// is the same for every kind of it is here, once: run, start, test and wait, what is agreed on around a call, how a
/// call is given up, the error state. onebit.h says what each call means; a method here is one call of the C API. Used
/// by one thread at a time.
class Collective {
  public:
    virtual ~Collective() = default;
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;

    /// Whatever a thread calls here, it calls while it holds one of these.
    Entered enter() const { return Entered(backend_); }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return patience_.abort_switch; }

    Status run(const void* input, void* output);
    Status start(const void* input, void* output);
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
    Status reset();

    /// Whether the handle can compress. One that can't is dense for good: its error is always zero.
    bool compresses() const { return plan_.compresses(); }
    const Codec& codec() const { return *codec_; }
    /// The chunk whose server error this rank has, and what part of the worker error: all, or a shard. Empty where
    /// there is none.
    Chunk server_chunk() const { return error_state().server_chunk; }
    Chunk worker_part() const { return error_state().worker_part; }

    /// Copies the errors to where a pointer is not NULL: plan().count and server_chunk().count floats.
    Status get_error(float* worker, float* server);
    /// The state of a handle that compresses: errors of worker_part() and server_chunk(), and, to replace it, the
    /// number of calls that led to them. A GPU that fails to take it breaks the handle.
    void get_state(float* worker, float* server) const;
    Status set_state(const float* worker, const float* server, std::uint64_t calls);
    /// The same with all errors one behind the other, those of levels first.
    std::size_t errors() const;
    void get_state(float* errors) const;
    Status set_state(const float* errors, std::uint64_t calls);
    std::uint64_t calls() const { return calls_; }
    /// Of the mask's words, as the ranks have agreed on it; 0 where there was none yet. Of a collective with shards, of
    /// them. Of levels in any case.
    std::uint64_t mask_hash() const { return mask_hash_ ^ plan_.levels.hash; }

    const Plan& plan() const { return plan_; }
    /// Says what was chosen, in the log.
    virtual void tell(const Communicator& communicator, const char* collective) const {
        plan_.tell(communicator, collective);
    }
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

  protected:
    /// What each is made of.
    struct Parts {
        Plan plan;
        std::shared_ptr<const MemoryBackend> backend;
        std::unique_ptr<Codec> codec;
        std::unique_ptr<Transport> channel;
        Patience patience;
    };
    /// Makes the plan's backend and codec. Collective.
    static Status make_parts(Communicator& communicator, Parts* parts);

    explicit Collective(Parts parts)
        : plan_(std::move(parts.plan)),
          backend_(std::move(parts.backend)),
          channel_(std::move(parts.channel)),
          patience_(std::move(parts.patience)),
          codec_(std::move(parts.codec)),
          elements_(plan_.datatype, numeric_kernels(codec_->kernels())) {}

    /// A way that the plan may use, and what a call of it comes to.
    struct Form {
        std::unique_ptr<Algorithm> algorithm;
        std::vector<Stage> stages;
    };

    /// Of the agreements on its channel, which have two.
    static constexpr int kAgreementTag = 0;

    /// What the ranks agree by, and what looks at values. Local.
    Status equip(const Environment& environment);
    /// `looks`: how often values may be looked at, and the ranks agree, before the algorithm's stages. `behind`: stages
    /// after the call is concluded.
    void add_form(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm, int looks, std::vector<Stage> behind);
    Form& form(onebit_algorithm_t name) { return forms_[static_cast<std::size_t>(name)]; }

    // ---- what each kind has of its own ----

    /// What is wrong with a call's buffers.
    virtual Status check_buffers(const void* input, const void* output) const = 0;
    /// Begins a call on them. `own`: what is already wrong on this rank, if anything.
    virtual void begin_call(const Status& own, const void* input, void* output) = 0;
    virtual ErrorState error_state() const = 0;
    /// Makes a form that takes memory which not every handle needs, if it can. Local.
    virtual Status make_form(onebit_algorithm_t /*name*/) { return {}; }
    /// Whether handles of this kind can have that form at all; and which they can have: "DENSE, ... or _RING".
    virtual bool may_have(onebit_algorithm_t /*name*/) const { return true; }
    virtual const char* algorithm_names() const = 0;
    /// Whether a call that ended like this is one of those that the error has come from.
    virtual bool counts(const Status& status) const { return status.ok(); }
    /// Channels besides its own that may be a stream's, or NULL; and what becomes of them when a call is given up.
    virtual std::array<Transport*, 2> other_channels() const { return {}; }
    virtual void give_up_others(const Status& /*why*/) {}

    void begin(onebit_algorithm_t algorithm, const Operands& operands);
    void begin(std::span<const Stage> stages, const Operands& operands);
    /// To be called by each kind's destructor: the forms go before what they work on. False where messages of an
    /// operation that never finished may still arrive: what they are written to must stay, and the kind lets go of its
    /// own without freeing it.
    bool close();
    /// For what comes after an agreement: where it fails on this rank alone, the handle is broken.
    template <typename Body>
    Status carry_out(const Body& body) {
        const Status status = catch_exceptions(body);
        return status.ok() ? status : abandon(status);
    }
    /// What all kinds' info structs have.
    template <typename Info>
    void fill_common(Info* info) const;

    Plan plan_;
    std::shared_ptr<const MemoryBackend> backend_;
    std::unique_ptr<Transport> channel_;
    Patience patience_;
    std::unique_ptr<Codec> codec_;
    Elements elements_;              ///< of the caller's buffers
    std::unique_ptr<Search> search_; ///< for values that are not finite
    std::unique_ptr<Agreement> agreement_;
    std::unique_ptr<Preflight> preflight_;
    std::array<Form, kAlgorithms> forms_; ///< by onebit_algorithm_t; none for AUTO

    std::uint64_t calls_ = 0;
    std::uint64_t mask_hash_ = 0;

  private:
    Status begin(const void* input, void* output);
    bool has_stream_ordered_channel() const;
    Status check_finished() const;
    Status check_may_go_on() const;
    Status go_on_until(Step last);
    /// What is in flight has been aborted, or has waited in vain for too long.
    Status give_up_waiting();
    Status look_at_channels();
    Status tell_outcome();
    Status finish(const Status& status);

    // The operation in flight.
    bool in_flight_ = false;
    bool refused_here_ = false;     ///< by this rank: its buffers, or its stream
    bool returned_ = false;         ///< it is a run that has returned already: what is left is to be told how it ended
    std::optional<Status> outcome_; ///< of one that is finished but not told of
    StageRunner runner_;
    VainLooks vain_looks_; ///< of test
    Operands operands_;
    std::uint64_t bytes_before_ = 0;

    Status broken_; ///< what made the handle unusable, if anything did
    std::uint64_t last_bytes_sent_ = 0;
};

template <typename Info>
void Collective::fill_common(Info* info) const {
    info->threads = plan_.threads;
    const bool to_be_counted = returned_ && in_flight_ && broken_.ok();
    info->calls = calls_ + (to_be_counted ? 1 : 0);
    info->bytes_sent = bytes_sent();
    info->last_bytes_sent = to_be_counted ? info->bytes_sent - bytes_before_ : last_bytes_sent_;
    info->state_bytes = 0;
    const ErrorState state = error_state();
    for (const Feedback* const error : {state.worker, state.server}) {
        if (error != nullptr) info->state_bytes += error->state_bytes();
    }
    for (const LevelError& level : state.of_levels) info->state_bytes += level.error->state_bytes();
    info->workspace_bytes = agreement_->bytes();
    for (const Form& form : forms_) {
        if (form.algorithm != nullptr) info->workspace_bytes += form.algorithm->workspace_bytes();
    }
    info->algorithm = plan_.algorithm;
    std::snprintf(info->kernels, sizeof(info->kernels), "%s", codec_->kernels());
    std::snprintf(info->reason, sizeof(info->reason), "%s", plan_.reason.c_str());
}

} // namespace onebit
