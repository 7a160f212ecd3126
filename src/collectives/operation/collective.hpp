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

/// A persistent collective: a plan, a channel, the algorithms that the plan may use, and the operation in flight. This
/// class has everything that all kinds of collectives share: run, start, test and wait, the agreements around a call,
/// how a call is given up, the error state. onebit.h says what each call means. A method here is one call of the C API.
/// Used by one thread at a time.
class Collective {
  public:
    virtual ~Collective() = default;
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;

    /// A thread must hold an Entered while it calls any method here.
    Entered enter() const { return Entered(backend_); }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return patience_.abort_switch; }

    Status run(const void* input, void* output);
    Status start(const void* input, void* output);
    Status test(bool* done);
    Status wait();
    /// As test, but a later test or wait still tells how the operation ended. Always a success.
    Status move_on(bool* done);
    UnderWay under_way() const;
    /// One step of the operation in flight; it ends when all stages are done or one failed.
    Status advance(Step* step);
    bool in_flight() const { return in_flight_; }
    /// The operation in flight will never be finished, because of `why`. Returns `why` with the ranks that have not
    /// answered.
    Status abandon(const Status& why);
    /// The same, where it is known already which ranks have not answered.
    void break_off(const Status& why);
    /// How long its calls wait.
    const Patience& patience() const { return patience_; }
    /// What made the handle unusable, if anything did.
    const Status& broken() const { return broken_; }

    /// To be called before the settings or the error state are touched. BUSY while a started operation is not finished;
    /// UNSUPPORTED while the stream is captured; what broke the handle, if it is broken. Finishes a run that has
    /// returned before its end. The next run, start or wait still tells how that run ended, because one rank alone may
    /// call this.
    Status check_idle();
    Status check_not_broken() const;
    /// BUSY while a started operation is not finished but still can be; UNSUPPORTED where a captured stream can't be
    /// asked.
    Status check_destroyable() const;

    Status set_algorithm(onebit_algorithm_t algorithm);
    Status reset();

    /// Whether the handle can compress. A handle that can't is always dense: its error is always zero.
    bool compresses() const { return plan_.compresses(); }
    const Codec& codec() const { return *codec_; }
    /// The chunk whose server error this rank has, and the part of the worker error that it has: all, or a shard. Empty
    /// where there is no such error.
    Chunk server_chunk() const { return error_state().server_chunk; }
    Chunk worker_part() const { return error_state().worker_part; }

    /// Copies each error whose pointer is not NULL: plan().count and server_chunk().count floats.
    Status get_error(float* worker, float* server);
    /// The state of a handle that compresses: the errors of worker_part() and server_chunk(). set_state also takes the
    /// number of calls that led to them. If a GPU fails to take the state, the handle is broken.
    void get_state(float* worker, float* server) const;
    Status set_state(const float* worker, const float* server, std::uint64_t calls);
    /// The same with all errors one after the other, the errors of levels first.
    std::size_t errors() const;
    void get_state(float* errors) const;
    Status set_state(const float* errors, std::uint64_t calls);
    std::uint64_t calls() const { return calls_; }
    /// The hash of the mask that the ranks have agreed on; 0 where there was no mask yet. Of a collective with shards,
    /// the shards' hash. The levels' hash is always included.
    std::uint64_t mask_hash() const { return mask_hash_ ^ plan_.levels.hash; }

    const Plan& plan() const { return plan_; }
    /// Says what was chosen, in the log.
    virtual void tell(const Communicator& communicator, const char* collective) const {
        plan_.tell(communicator, collective);
    }
    /// The tag of an exchange that other code plans on this channel.
    static constexpr int kSpareTag = kFewTags - 1;
    Transport& channel() { return *channel_; }
    const Transport& channel() const { return *channel_; }
    /// All bytes that this rank has sent to other ranks, for any purpose and by any way.
    std::uint64_t bytes_sent() const;

    /// Every rank brings its own status and two words that must be the same everywhere. Every rank gets the common
    /// verdict. Collective; blocks. `meanwhile`: as for decide_now.
    Status agree_now(const Status& own, std::uint32_t word = 0, std::uint64_t value = 0,
                     std::array<const char*, 2> what = {}, const std::function<Status(bool*)>& meanwhile = {});
    /// Likewise, but the words may differ, and every rank gets to know all of them. Collective; blocks.
    Status gather_now(const Status& own, const Told& mine, std::vector<Told>* all);
    /// Whether all ranks came to the last agreement with the same word, whatever the verdict.
    bool agreed_on_word() const { return agreement_->same_word(); }

  protected:
    /// What each collective is made of.
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

    /// An algorithm that the plan may use, and the stages of its calls.
    struct Form {
        std::unique_ptr<Algorithm> algorithm;
        std::vector<Stage> stages;
    };

    /// The first of the two tags of the agreements on this channel.
    static constexpr int kAgreementTag = 0;

    /// Makes what the ranks agree with, and what looks at values. Local.
    Status equip(const Environment& environment);
    /// `looks`: how many times values may be looked at, and the ranks agree, before the algorithm's stages. `behind`:
    /// stages after the call is concluded.
    void add_form(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm, int looks, std::vector<Stage> behind);
    Form& form(onebit_algorithm_t name) { return forms_[static_cast<std::size_t>(name)]; }

    // ---- what each kind of collective defines itself ----

    /// What is wrong with a call's buffers.
    virtual Status check_buffers(const void* input, const void* output) const = 0;
    /// Begins a call on these buffers. `own`: what is already wrong on this rank, if anything.
    virtual void begin_call(const Status& own, const void* input, void* output) = 0;
    virtual ErrorState error_state() const = 0;
    /// Makes a form that takes memory which not every handle needs, if it can. Local.
    virtual Status make_form(onebit_algorithm_t /*name*/) { return {}; }
    /// Whether handles of this kind can have that form at all; and the forms that they can have: "DENSE, ... or _RING".
    virtual bool may_have(onebit_algorithm_t /*name*/) const { return true; }
    virtual const char* algorithm_names() const = 0;
    /// Whether a call that ended like this is one of the calls that led to the error.
    virtual bool counts(const Status& status) const { return status.ok(); }
    /// Channels besides its own that may be stream-ordered, or NULL; and how they are given up with a call.
    virtual std::array<Transport*, 2> other_channels() const { return {}; }
    virtual void give_up_others(const Status& /*why*/) {}

    void begin(onebit_algorithm_t algorithm, const Operands& operands);
    void begin(std::span<const Stage> stages, const Operands& operands);
    /// To be called by each kind's destructor: the forms are destroyed before what they work on. False where messages
    /// of an operation that never finished may still arrive. The memory they are written to must then stay, and the
    /// kind must release its own parts without freeing them.
    bool close();
    /// Runs what comes after an agreement: if `body` fails on this rank alone, the handle is broken.
    template <typename Body>
    Status carry_out(const Body& body) {
        const Status status = catch_exceptions(body);
        return status.ok() ? status : abandon(status);
    }
    /// Fills what the info structs of all kinds have.
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
    /// The operation in flight has been aborted, or has waited in vain for too long.
    Status give_up_waiting();
    Status look_at_channels();
    Status tell_outcome();
    Status finish(const Status& status);

    // The operation in flight.
    bool in_flight_ = false;
    bool refused_here_ = false;     ///< this rank refused the call, because of its buffers or its stream
    bool returned_ = false;         ///< a run that has returned already; how it ended is still to be told
    std::optional<Status> outcome_; ///< of an operation that is finished, but still to be told
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
