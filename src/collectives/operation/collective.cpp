// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/collective.hpp"

#include <algorithm>
#include <string>

#include "core/parallel.hpp"
#include "core/wait.hpp"
#include "transport/give_up.hpp"

namespace onebit {

// -------------------------------------------------------------------------------------------------- creation ----

Status Collective::make_parts(Communicator& communicator, Parts* parts) {
    const Plan& plan = parts->plan;
    parts->patience = communicator.patience();
    return communicator.agree(catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(make_memory_backend(plan.memory, plan.stream, &parts->backend));
        const Entered entered(parts->backend);
        ONEBIT_RETURN_IF_ERROR(reserve_threads(plan.threads));
        CodecConfig codec = codec_config_of(plan);
        codec.threads = plan.threads;
        codec.kernels = communicator.environment().kernels;
        codec.stream = plan.stream;
        if (plan.averages_factors()) codec.codec = ONEBIT_CODEC_BFLOAT16; // only its kernels' name is used
        return make_codec(codec, &parts->codec);
    }));
}

Status Collective::equip(const Environment& environment) {
    ONEBIT_RETURN_IF_ERROR(backend_->reach(environment, &channel_));
    ONEBIT_RETURN_IF_ERROR(Agreement::create(*channel_, kAgreementTag, &agreement_));
    search_ = backend_->make_search(elements_);
    preflight_ = std::make_unique<Preflight>(*agreement_, *search_, *backend_, elements_);
    return {};
}

void Collective::add_form(onebit_algorithm_t name, std::unique_ptr<Algorithm> algorithm, int looks,
                          std::vector<Stage> behind) {
    std::vector<Stage> stages;
    for (int look = 0; look < looks; ++look) {
        stages.push_back({"check values", [this](Step* step) { return preflight_->check_values(step); }});
        stages.push_back({"agree", [this](Step* step) { return preflight_->agree(step); }});
    }
    stages.insert(stages.end(), algorithm->stages().begin(), algorithm->stages().end());
    if (plan_.check != ONEBIT_CHECK_NONE) {
        stages.push_back({"conclude", [this](Step* step) { return preflight_->conclude(step); }});
    }
    std::ranges::move(behind, std::back_inserter(stages));
    form(name) = {std::move(algorithm), std::move(stages)};
}

bool Collective::close() {
    if (returned_) (void)wait();
    const bool clean = broken_.ok() && !in_flight_;
    if (!clean) {
        for (Form& form : forms_) (void)form.algorithm.release();
        (void)agreement_.release();
    }
    forms_ = {};
    return clean;
}

// ------------------------------------------------------------------------------------------------- operation ----

Status Collective::run(const void* input, void* output) {
    ONEBIT_RETURN_IF_ERROR(begin(input, output));
    // Without checks, run need not wait for the end of a GPU's work.
    const bool told_later = plan_.check == ONEBIT_CHECK_NONE && plan_.memory != ONEBIT_MEMORY_HOST;
    const Status status = go_on_until(told_later ? Step::kInStream : Step::kDone);
    // This rank knows already, but maybe not every rank does: all are told by their next call.
    const bool overflowed = told_later && status.code() == ONEBIT_ERROR_NONFINITE;
    if (overflowed) outcome_ = status;
    returned_ = overflowed || (in_flight_ && status.ok());
    return overflowed ? Status() : status;
}

Status Collective::start(const void* input, void* output) {
    ONEBIT_RETURN_IF_ERROR(begin(input, output));
    // A stream's work goes on by itself. It must be queued in the same order on every rank, whichever rank tests.
    if (!has_stream_ordered_channel()) return {};
    const Status status = go_on_until(Step::kInStream);
    if (!in_flight_ || !status.ok()) outcome_ = status;
    return {};
}

bool Collective::has_stream_ordered_channel() const {
    const auto is_ordered = [](const Transport* channel) { return channel != nullptr && channel->is_stream_ordered(); };
    return is_ordered(channel_.get()) || std::ranges::any_of(other_channels(), is_ordered);
}

Status Collective::begin(const void* input, void* output) {
    if (returned_) ONEBIT_RETURN_IF_ERROR(wait()); // on every rank, with the same verdict
    ONEBIT_RETURN_IF_ERROR(check_not_broken());
    ONEBIT_RETURN_IF_ERROR(check_finished());
    const Status ready = backend_->check_ready();
    if (channel_->is_stream_ordered()) ONEBIT_RETURN_IF_ERROR(ready); // words to the others go through the stream, too
    const Status own = ready.ok() ? check_buffers(input, output) : ready;
    if (plan_.check == ONEBIT_CHECK_NONE) ONEBIT_RETURN_IF_ERROR(own);
    refused_here_ = !own.ok();
    begin_call(own, input, output);
    return {};
}

void Collective::begin(onebit_algorithm_t algorithm, const Operands& operands) {
    form(algorithm).algorithm->set_operands(operands);
    begin(form(algorithm).stages, operands);
}

void Collective::begin(std::span<const Stage> stages, const Operands& operands) {
    operands_ = operands;
    bytes_before_ = bytes_sent();
    runner_.start(stages);
    vain_looks_.restart();
    in_flight_ = true;
}

Status Collective::test(bool* done) {
    // Every rank's next call tells how a returned run ended: some ranks may test once, others more often.
    *done = !in_flight_ || returned_;
    if (returned_) return {};
    if (outcome_) {
        *done = true;
        return tell_outcome();
    }
    if (!in_flight_) return {};
    ONEBIT_RETURN_IF_ERROR(check_may_go_on());
    Step step = Step::kDone;
    Status status = advance(&step);
    if (status.ok() && in_flight_) {
        if (!waits(step)) {
            vain_looks_.restart();
        } else if (patience_.aborted() || vain_looks_.last_for(patience_.timeout)) {
            status = give_up_waiting();
        }
    }
    *done = !in_flight_ || !status.ok();
    return status;
}

Status Collective::move_on(bool* done) {
    *done = !in_flight_ || returned_ || outcome_;
    if (*done) return {};
    const Status status = test(done);
    if (*done) outcome_ = status;
    return {};
}

/// A run that has returned is not a started operation.
UnderWay Collective::under_way() const {
    const bool open = outcome_ || (in_flight_ && broken_.ok());
    return open && !returned_ ? UnderWay::kOperation : UnderWay::kNothing;
}

Status Collective::wait() {
    if (outcome_) return tell_outcome();
    ONEBIT_RETURN_IF_ERROR(check_may_go_on());
    returned_ = false;
    return go_on_until(Step::kDone);
}

Status Collective::tell_outcome() {
    returned_ = false;
    return *std::exchange(outcome_, std::nullopt);
}

/// Stops earlier where the operation ends. kDone: goes to the end.
Status Collective::go_on_until(Step last) {
    Waiter waiter(patience_);
    while (in_flight_) {
        Step step = Step::kDone;
        ONEBIT_RETURN_IF_ERROR(advance(&step));
        if (step == last && in_flight_) return {};
        if (!waits(step)) {
            waiter.progress();
        } else if (!waiter.keep_waiting()) {
            return give_up_waiting();
        }
    }
    return {};
}

Status Collective::give_up_waiting() {
    const std::string stage = std::string("stage '") + runner_.stage_name() + "'";
    return abandon(why_not_waited(stage.c_str(), patience_));
}

Status Collective::advance(Step* step) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    const Status status = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(runner_.advance(step));
        return *step == Step::kInStream ? look_at_channels() : Status();
    });
    return !status.ok() || runner_.finished() ? finish(status) : status;
}

/// No stage waits for a message any more, so none would notice the loss of a peer that the stream still waits for.
Status Collective::look_at_channels() {
    ONEBIT_RETURN_IF_ERROR(channel_->progress());
    for (Transport* const channel : other_channels()) {
        if (channel != nullptr) ONEBIT_RETURN_IF_ERROR(channel->progress());
    }
    return {};
}

Status Collective::abandon(const Status& why) {
    break_off(give_up_on(*channel_, why));
    return broken_;
}

void Collective::break_off(const Status& why) {
    channel_->give_up(why);
    give_up_others(why);
    broken_ = why; // still in flight, for ever: the destructor must know
}

Status Collective::finish(const Status& status) {
    // Refused by all, or overflowed on all: all messages have been sent and received.
    const bool orderly = status.ok() || preflight_->refused() || status.code() == ONEBIT_ERROR_NONFINITE;
    if (!orderly) return abandon(status);
    in_flight_ = false;
    if (!counts(status)) return status;
    calls_ += operands_.tentative && operands_.vote == nullptr ? 0 : 1;
    last_bytes_sent_ = bytes_sent() - bytes_before_;
    return status;
}

// ----------------------------------------------------------------------------------------------------- checks ----

Status Collective::check_idle() {
    ONEBIT_RETURN_IF_ERROR(backend_->check_ready()); // the error state is a stream's work, too
    if (returned_ && in_flight_) outcome_ = go_on_until(Step::kDone);
    ONEBIT_RETURN_IF_ERROR(check_not_broken());
    return check_finished();
}

/// A call that this rank has refused goes on whatever happens to the stream: none of its work enters the stream, but
/// the other ranks must hear of it.
Status Collective::check_may_go_on() const {
    return in_flight_ && !refused_here_ ? backend_->check_ready() : Status();
}

Status Collective::check_not_broken() const {
    if (broken_.ok()) return patience_.abort_switch->why();
    return Status::error(broken_.code(), "the handle is broken, destroy it; what broke it: %s",
                         broken_.message().c_str());
}

Status Collective::check_finished() const {
    if (returned_ || (!in_flight_ && !outcome_)) return {};
    return Status::error(ONEBIT_ERROR_BUSY, "a started operation is not finished: wait for it first");
}

Status Collective::check_destroyable() const {
    if (!broken_.ok() || patience_.aborted()) return {};
    return returned_ ? check_may_go_on() : check_finished();
}

Status Collective::agree_now(const Status& own, std::uint32_t word, std::uint64_t value,
                             std::array<const char*, 2> what, const std::function<Status(bool*)>& meanwhile) {
    const Status verdict = decide_now(*agreement_, patience_, own, word, value, what, meanwhile);
    return agreement_->decided() || !broken_.ok() ? verdict : abandon(verdict);
}

Status Collective::gather_now(const Status& own, const Told& mine, std::vector<Told>* all) {
    const Status ready = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        all->resize(agreement_->ranks());
        return Status();
    });
    Status verdict = agree_now(ready, mine.word, mine.value, {"", ""});
    if (!broken_.ok() || !agreement_->all_ready()) return verdict;
    for (std::size_t r = 0; r < all->size(); ++r) (*all)[r] = agreement_->told(r); // different words are no failure
    return {};
}

// ------------------------------------------------------------------------------------- settings and the error ----

Status Collective::set_algorithm(onebit_algorithm_t algorithm) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    const bool known = algorithm > ONEBIT_ALGORITHM_AUTO && static_cast<std::size_t>(algorithm) < forms_.size();
    if (!known || !may_have(algorithm)) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "algorithm: %d is not ONEBIT_ALGORITHM_%s",
                             static_cast<int>(algorithm), algorithm_names());
    }
    ONEBIT_RETURN_IF_ERROR(make_form(algorithm));
    if (form(algorithm).algorithm == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "algorithm: the handle was created %s (%s) and has no buffers for %s: create it with "
                             "that as config.algorithm",
                             algorithm_name(plan_.compressed_algorithm), plan_.reason.c_str(),
                             algorithm_name(algorithm));
    }
    plan_.algorithm = algorithm;
    plan_.reason = "asked for by set_algorithm";
    return {};
}

Status Collective::reset() {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    const ErrorState state = error_state();
    if (state.worker != nullptr) state.worker->reset();
    if (state.server != nullptr) state.server->reset();
    for (const LevelError& level : state.of_levels) level.error->reset();
    return {};
}

Status Collective::get_error(float* worker, float* server) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    const ErrorState state = error_state();
    if (worker != nullptr) std::fill_n(worker, plan_.count, 0.0F);
    get_state(worker == nullptr ? nullptr : worker + state.worker_part.begin, server);
    return {};
}

void Collective::get_state(float* worker, float* server) const {
    const ErrorState state = error_state();
    if (state.worker != nullptr && worker != nullptr) state.worker->get_error(worker);
    if (state.server != nullptr && server != nullptr) state.server->get_error(server);
}

Status Collective::set_state(const float* worker, const float* server, std::uint64_t calls) {
    calls_ = calls;
    returned_ = false; // if the run's error overflowed, it has been replaced
    outcome_.reset();
    return carry_out([&] {
        const ErrorState state = error_state();
        if (state.worker != nullptr) state.worker->set_error(worker);
        if (state.server != nullptr) state.server->set_error(server);
        return Status();
    });
}

std::size_t Collective::errors() const {
    const ErrorState state = error_state();
    std::size_t errors = state.worker_part.count + state.server_chunk.count;
    for (const LevelError& level : state.of_levels) errors += level.part.count;
    return errors;
}

void Collective::get_state(float* errors) const {
    const ErrorState state = error_state();
    for (const LevelError& level : state.of_levels) {
        level.error->get_error(errors);
        errors += level.part.count;
    }
    get_state(errors, errors + state.worker_part.count);
}

Status Collective::set_state(const float* errors, std::uint64_t calls) {
    const ErrorState state = error_state();
    for (const LevelError& level : state.of_levels) {
        level.error->set_error(errors);
        errors += level.part.count;
    }
    return set_state(errors, errors + state.worker_part.count, calls);
}

std::uint64_t Collective::bytes_sent() const {
    std::uint64_t bytes = channel_->bytes_sent();
    for (const Form& form : forms_) bytes += form.algorithm == nullptr ? 0 : form.algorithm->bytes_sent();
    return bytes;
}

} // namespace onebit
