// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/allreduce.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "core/hash.hpp"
#include "core/wait.hpp"
#include "transport/give_up.hpp"

namespace onebit {

// ------------------------------------------------------------------------------------------------- operation ----

Status Allreduce::run(const void* input, void* output) {
    ONEBIT_RETURN_IF_ERROR(begin(input, output));
    // Without checks nobody asked to wait for how a GPU's work ends.
    const bool told_later = plan_.check == ONEBIT_CHECK_NONE && plan_.memory != ONEBIT_MEMORY_HOST;
    const Status status = go_on_until(told_later ? Step::kInStream : Step::kDone);
    // Known already, but maybe not on every rank: all are told by their next call.
    const bool overflowed = told_later && status.code() == ONEBIT_ERROR_NONFINITE;
    if (overflowed) outcome_ = status;
    returned_ = overflowed || (in_flight_ && status.ok());
    return overflowed ? Status() : status;
}

Status Allreduce::start(const void* input, void* output) {
    ONEBIT_RETURN_IF_ERROR(begin(input, output));
    // Work of a stream goes on by itself, and must be put there in the same order on every rank, whoever tests what.
    const bool in_stream =
        channel_->is_stream_ordered() || (channels_.node != nullptr && channels_.node->is_stream_ordered());
    if (!in_stream) return {};
    const Status status = go_on_until(Step::kInStream);
    if (!in_flight_ || !status.ok()) outcome_ = status;
    return {};
}

Status Allreduce::run_compressed(const ValueSource& source) {
    begin(plan_.compressed_algorithm, {.source = &source});
    return wait();
}

void Allreduce::start_tentative(const ValueSource* source) {
    begin(plan_.compressed_algorithm, {.source = source, .tentative = true});
}

void Allreduce::commit() {
    flat_->commit();
    ++calls_;
}

Status Allreduce::run_sum(float* values) {
    begin(ONEBIT_ALGORITHM_DENSE, {.input = values, .output = values, .sum_only = true});
    return wait();
}

void Allreduce::start_sum() {
    begin(direct_sum_->stages(), {});
}

Status Allreduce::begin(const void* input, void* output) {
    if (returned_) ONEBIT_RETURN_IF_ERROR(wait()); // on every rank, whose verdict is the same
    ONEBIT_RETURN_IF_ERROR(check_not_broken());
    ONEBIT_RETURN_IF_ERROR(check_finished());
    const Status ready = placement_->check_ready();
    if (channel_->is_stream_ordered()) ONEBIT_RETURN_IF_ERROR(ready); // words to the others go through the stream, too
    const Status own = ready.ok() ? check_->check_buffers(input, output, plan_.count) : ready;
    if (plan_.check == ONEBIT_CHECK_NONE) ONEBIT_RETURN_IF_ERROR(own);
    refused_here_ = !own.ok();
    const auto* const values = static_cast<const float*>(input);
    const bool dense = plan_.algorithm == ONEBIT_ALGORITHM_DENSE;
    const bool if_all_apart = dense && plan_.checks_sums_on_the_way();
    const bool sum_tells = plan_.sum_tells();
    // What a mask leaves out the encoder doesn't look at.
    const bool tentative = if_all_apart || sum_tells || (plan_.tentative && !dense && !masked());
    check_->begin(own, {.input = values,
                        .count = plan_.count,
                        .tentative = tentative,
                        .if_all_apart = if_all_apart,
                        .apart = input != output,
                        .algorithm = plan_.algorithm,
                        .calls = calls_});
    array_source_ = ArraySource(values);
    array_sink_ = ArraySink(static_cast<float*>(output), stores_for(plan_.count * sizeof(float)));
    begin(plan_.algorithm, {.input = sum_tells && !own.ok() ? nullptr : values,
                            .output = static_cast<float*>(output),
                            .source = &array_source_,
                            .sink = &array_sink_,
                            .sum_only = plan_.op == ONEBIT_OP_SUM,
                            .tentative = tentative,
                            .consent = tentative ? check_.get() : nullptr});
    return {};
}

void Allreduce::begin(onebit_algorithm_t algorithm, const Operands& operands) {
    form(algorithm).algorithm->set_operands(operands);
    begin(form(algorithm).stages, operands);
}

void Allreduce::begin(std::span<const Stage> stages, const Operands& operands) {
    operands_ = operands;
    bytes_before_ = bytes_sent();
    runner_.start(stages);
    in_flight_ = true;
}

Status Allreduce::test(bool* done) {
    // How a run ended that has returned every rank's next call is to tell: some may test once, others more often.
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
    if (status.ok() && in_flight_ && waits(step) && patience_.aborted())
        status = abandon(patience_.abort_switch->why());
    *done = !in_flight_ || !status.ok();
    return status;
}

Status Allreduce::move_on(bool* done) {
    *done = !in_flight_ || returned_ || outcome_;
    if (*done) return {};
    const Status status = test(done);
    if (*done) outcome_ = status;
    return {};
}

/// A run that has returned is none that was started.
UnderWay Allreduce::under_way() const {
    const bool open = outcome_ || (in_flight_ && broken_.ok());
    return open && !returned_ ? UnderWay::kOperation : UnderWay::kNothing;
}

Status Allreduce::wait() {
    if (outcome_) return tell_outcome();
    ONEBIT_RETURN_IF_ERROR(check_may_go_on());
    returned_ = false;
    return go_on_until(Step::kDone);
}

Status Allreduce::tell_outcome() {
    returned_ = false;
    return *std::exchange(outcome_, std::nullopt);
}

/// Or as far as it goes. kDone: to the end.
Status Allreduce::go_on_until(Step last) {
    Waiter waiter(patience_);
    while (in_flight_) {
        Step step = Step::kDone;
        ONEBIT_RETURN_IF_ERROR(advance(&step));
        if (step == last && in_flight_) return {};
        if (!waits(step)) {
            waiter.progress();
        } else if (!waiter.keep_waiting()) {
            const std::string stage = std::string("stage '") + runner_.stage_name() + "'";
            return abandon(waiter.failure(stage.c_str()));
        }
    }
    return {};
}

Status Allreduce::advance(Step* step) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    const Status status = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(runner_.advance(step));
        return *step == Step::kInStream ? look_at_channels() : Status();
    });
    return !status.ok() || runner_.finished() ? finish(status) : status;
}

/// No stage waits for a message any more, which would tell that a peer has gone whom the stream still waits for.
Status Allreduce::look_at_channels() {
    for (Transport* const channel : {channel_.get(), channels_.node.get(), channels_.across.get()}) {
        if (channel != nullptr) ONEBIT_RETURN_IF_ERROR(channel->progress());
    }
    return {};
}

Status Allreduce::abandon(const Status& why) {
    break_off(give_up_on(*channel_, why));
    return broken_;
}

void Allreduce::break_off(const Status& why) {
    channel_->give_up(why);
    channels_.give_up(why);
    broken_ = why; // still in flight, for ever: the destructor must know
}

Status Allreduce::finish(const Status& status) {
    // Refused by all, or overflowed on all: their messages have come and gone.
    const bool orderly = status.ok() || check_->refused() || status.code() == ONEBIT_ERROR_NONFINITE;
    if (!orderly) return abandon(status);
    in_flight_ = false;
    if (!status.ok()) return status;
    calls_ += operands_.tentative && operands_.consent == nullptr ? 0 : 1;
    last_bytes_sent_ = bytes_sent() - bytes_before_;
    return {};
}

// ----------------------------------------------------------------------------------------------------- checks ----

Status Allreduce::check_idle() {
    ONEBIT_RETURN_IF_ERROR(placement_->check_ready()); // the error state is a stream's work, too
    if (returned_ && in_flight_) outcome_ = go_on_until(Step::kDone);
    ONEBIT_RETURN_IF_ERROR(check_not_broken());
    return check_finished();
}

/// A call that this rank has refused goes on whatever happens to the stream: nothing of it comes there, but to the
/// others.
Status Allreduce::check_may_go_on() const {
    return in_flight_ && !refused_here_ ? placement_->check_ready() : Status();
}

Status Allreduce::check_not_broken() const {
    if (broken_.ok()) return patience_.abort_switch->why();
    return Status::error(broken_.code(), "the handle is broken, destroy it; what broke it: %s",
                         broken_.message().c_str());
}

Status Allreduce::check_finished() const {
    if (returned_ || (!in_flight_ && !outcome_)) return {};
    return Status::error(ONEBIT_ERROR_BUSY, "a started operation is not finished: call onebit_allreduce_wait first");
}

Status Allreduce::check_destroyable() const {
    if (!broken_.ok() || patience_.aborted()) return {};
    return returned_ ? check_may_go_on() : check_finished();
}

Status Allreduce::agree_now(const Status& own, std::uint32_t word, std::uint64_t value, std::array<const char*, 2> what,
                            const std::function<Status(bool*)>& meanwhile) {
    const Status verdict = decide_now(*agreement_, patience_, own, word, value, what, meanwhile);
    return agreement_->decided() || !broken_.ok() ? verdict : abandon(verdict);
}

Status Allreduce::gather_now(const Status& own, const Told& mine, std::vector<Told>* all) {
    const Status ready = catch_exceptions([&] {
        ONEBIT_RETURN_IF_ERROR(own);
        all->resize(agreement_->ranks());
        return Status();
    });
    Status verdict = agree_now(ready, mine.word, mine.value, {"", ""});
    if (!broken_.ok() || !agreement_->all_ready()) return verdict;
    for (std::size_t r = 0; r < all->size(); ++r) (*all)[r] = agreement_->told(r); // that they differ is no failure
    return {};
}

// --------------------------------------------------------------------------------------------------- settings ----

Status Allreduce::set_algorithm(onebit_algorithm_t algorithm) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    if (algorithm <= ONEBIT_ALGORITHM_AUTO || static_cast<std::size_t>(algorithm) >= forms_.size()) {
        return Status::error(
            ONEBIT_ERROR_INVALID_ARGUMENT,
            "algorithm: %d is not ONEBIT_ALGORITHM_DENSE, _FLAT, _PIPELINED, _TWO_LEVEL, _BRUCK or _RING",
            static_cast<int>(algorithm));
    }
    if (algorithm == ONEBIT_ALGORITHM_DENSE) ONEBIT_RETURN_IF_ERROR(make_sums());
    if (form(algorithm).algorithm == nullptr) {
        return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT,
                             "algorithm: the handle was created %s (%s) and has no buffers for %s: create it with "
                             "that as config.algorithm",
                             algorithm_name(plan_.compressed_algorithm), plan_.reason.c_str(),
                             algorithm_name(algorithm));
    }
    plan_.algorithm = algorithm;
    plan_.reason = "asked for by onebit_allreduce_set_algorithm";
    return {};
}

Status Allreduce::make_mask(const std::uint32_t* words, Mask* mask) const {
    if (!compresses()) return Status::error(ONEBIT_ERROR_INVALID_ARGUMENT, "the handle was created dense: no mask");
    if (words == nullptr) return {};
    mask->words = AlignedBuffer<std::uint32_t>(ceil_divide(plan_.count, kWordElements));
    std::copy_n(words, mask->words.size(), mask->words.data());
    if (const std::size_t rest = plan_.count % kWordElements; rest > 0) {
        mask->words[mask->words.size() - 1] &= (1U << rest) - 1;
    }
    if (two_level_ != nullptr) mask->of_shard = two_level_->shard_of(mask->words);
    if (&placement_->memory() != &host_memory()) {
        mask->placed = AlignedBuffer<std::uint32_t>(mask->words.size(), placement_->memory());
        mask->placed.copy_from(mask->words.data());
    }
    return {};
}

Status Allreduce::take_mask(Mask mask) {
    const std::uint64_t hash = mask.hash();
    if (hash == mask_hash_) return {}; // in force already, on every rank
    mask_hash_ = hash;
    return commit([&] {
        AlignedBuffer<std::uint32_t>& now = mask.placed.size() > 0 ? mask.placed : mask.words;
        if (two_level_ != nullptr) {
            two_level_->set_mask(std::move(now), std::move(mask.of_shard));
        } else {
            flat_->set_mask(std::move(now));
        }
        return Status();
    });
}

Status Allreduce::set_mask(const std::uint32_t* words, const Status& own_before) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    Mask mask;
    const Status own = catch_exceptions([&] { return own_before.ok() ? make_mask(words, &mask) : own_before; });
    ONEBIT_RETURN_IF_ERROR(agree_now(own, 0, mask.hash(), {"", "the mask (its hash)"}));
    return take_mask(std::move(mask));
}

Status Allreduce::reset() {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    if (!compresses()) return {};
    state()->worker().reset();
    state()->server().reset();
    return {};
}

Status Allreduce::get_error(float* worker, float* server) {
    ONEBIT_RETURN_IF_ERROR(check_idle());
    if (worker != nullptr) std::fill_n(worker, plan_.count, 0.0F);
    if (!compresses()) return {};
    if (worker != nullptr) state()->worker().get_error(worker + worker_part().begin);
    if (server != nullptr) state()->server().get_error(server);
    return {};
}

void Allreduce::get_state(float* worker, float* server) const {
    state()->worker().get_error(worker);
    state()->server().get_error(server);
}

Status Allreduce::set_state(const float* worker, const float* server, std::uint64_t calls) {
    calls_ = calls;
    returned_ = false; // and if its error overflowed, that has been replaced
    outcome_.reset();
    return commit([&] {
        state()->worker().set_error(worker);
        state()->server().set_error(server);
        return Status();
    });
}

Chunk Allreduce::worker_part() const {
    if (!compresses()) return {};
    return two_level_ == nullptr ? Chunk{0, 0, plan_.count} : two_level_->shard();
}

Chunk Allreduce::server_chunk() const {
    if (!compresses()) return {};
    Chunk chunk = state()->own_chunk();
    chunk.begin += worker_part().begin;
    return chunk;
}

std::uint64_t Allreduce::bytes_sent() const {
    std::uint64_t bytes = channel_->bytes_sent();
    for (const Form& form : forms_) bytes += form.algorithm == nullptr ? 0 : form.algorithm->bytes_sent();
    return bytes;
}

void Allreduce::fill_info(onebit_allreduce_info_t* info) const {
    info->threads = plan_.threads;
    const bool to_be_counted = returned_ && in_flight_ && broken_.ok();
    info->calls = calls_ + (to_be_counted ? 1 : 0);
    info->bytes_sent = bytes_sent();
    info->last_bytes_sent = to_be_counted ? info->bytes_sent - bytes_before_ : last_bytes_sent_;
    info->dense_bytes = ring_bytes(plan_.count, channel_->size());
    info->state_bytes = compresses() ? state()->worker().state_bytes() + state()->server().state_bytes() : 0;
    info->workspace_bytes = agreement_->bytes() + (flat_ == nullptr ? 0 : flat_->workspace_bytes()) +
                            (direct_sum_ == nullptr ? 0 : direct_sum_->workspace_bytes());
    for (const Form& form : forms_) {
        if (form.algorithm != nullptr) info->workspace_bytes += form.algorithm->workspace_bytes();
    }
    info->algorithm = plan_.algorithm;
    const bool nccl_in_node = plan_.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && channels_.node != nullptr &&
                              channels_.node->is_stream_ordered() && !channel_->is_stream_ordered();
    const Algorithm* const algorithm = forms_[static_cast<std::size_t>(plan_.algorithm)].algorithm.get();
    std::snprintf(info->transport, sizeof(info->transport), "%s%s%s", nccl_in_node ? "nccl+" : "", channel_->name(),
                  algorithm == nullptr ? "" : algorithm->way());
    std::snprintf(info->kernels, sizeof(info->kernels), "%s", codec_->kernels());
    std::snprintf(info->reason, sizeof(info->reason), "%s", plan_.reason.c_str());
}

} // namespace onebit
