// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl_channel.hpp"

#include <atomic>
#include <exception>
#include <future>
#include <utility>

namespace onebit::nccl {
namespace {

Config nonblocking() {
    Config config;
    config.blocking = 0;
    return config;
}

/// Where NCCL puts a communicator that it makes, from a thread of its own and at any later time.
class Slot {
  public:
    Comm* place() { return place_.get(); }
    Comm comm() const { return std::atomic_ref<Comm>(*place_).load(std::memory_order_acquire); }
    /// NCCL may still write to it, at any time.
    void leak() { (void)place_.release(); }

  private:
    std::unique_ptr<Comm> place_ = std::make_unique<Comm>(nullptr);
};

/// Waits until nothing is in progress on the communicator.
Status await(const NcclApi& api, Comm comm, const char* call, double timeout) {
    return poll(call, timeout, [&](bool* done) {
        Result state = kSuccess;
        ONEBIT_RETURN_IF_ERROR(check(api, comm, api.comm_get_async_error(comm, &state), "ncclCommGetAsyncError"));
        *done = state != kInProgress;
        return check(api, comm, state, call);
    });
}

} // namespace

Status check(const NcclApi& api, Comm comm, Result result, const char* call) {
    if (result == kSuccess || result == kInProgress) return {};
    const char* const more = api.get_last_error(comm);
    const bool has_more = more != nullptr && *more != '\0';
    return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: %s%s%s", call, api.get_error_string(result), has_more ? ": " : "",
                         has_more ? more : "");
}

Status split_comm(const NcclApi& api, Comm parent, int color, int key, double timeout, Comm* child) {
    constexpr const char* kCall = "ncclCommSplit";
    Config config = nonblocking();
    Slot slot;
    ONEBIT_RETURN_IF_ERROR(check(api, parent, api.comm_split(parent, color, key, slot.place(), &config), kCall));
    // Whatever the call returned: some versions return success when they have only begun. The parent tells the state.
    const Status status = await(api, parent, kCall, timeout);
    if (!status.ok()) {
        slot.leak();
        return status;
    }
    const Comm made = slot.comm();
    if (made == nullptr) return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: it made no communicator", kCall);
    const Status ready = await(api, made, kCall, timeout);
    if (ready.ok()) {
        *child = made;
    } else {
        (void)api.comm_abort(made);
    }
    return ready;
}

Status join_comm(const NcclApi& api, const UniqueId& id, int ranks, int rank, double timeout, Comm* comm) {
    constexpr const char* kCall = "ncclCommInitRankConfig";
    Config config = nonblocking();
    Slot slot;
    ONEBIT_RETURN_IF_ERROR(
        check(api, nullptr, api.comm_init_rank_config(slot.place(), ranks, id, rank, &config), kCall));
    const Comm made = slot.comm(); // is there from the start
    if (made == nullptr) return Status::error(ONEBIT_ERROR_TRANSPORT, "%s: it made no communicator", kCall);
    const Status ready = await(api, made, kCall, timeout);
    if (ready.ok()) {
        *comm = made;
    } else {
        slot.leak();
        (void)api.comm_abort(made);
    }
    return ready;
}

// -------------------------------------------------------------------------------------------------------- Queue ----

void Queue::add(Operation& operation) {
    Operation*& end = last_ == nullptr ? first_ : last_->next_;
    end = last_ = &operation;
}

void Queue::advance() {
    for (;;) {
        if (current_ != nullptr) {
            Channel& channel = *current_->channel_;
            bool in_progress = false;
            Status status = channel.look(&in_progress);
            if (status.ok() && in_progress) return;
            Operation* const operation = std::exchange(current_, nullptr);
            if (status.ok()) status = channel.remember(operation->accepted(channel.stream()));
        }
        if (first_ == nullptr) return;
        current_ = first_;
        first_ = std::exchange(current_->next_, nullptr);
        if (first_ == nullptr) last_ = nullptr;
        Channel& channel = *current_->channel_;
        if (channel.broken_.ok()) {
            (void)channel.remember(current_->issue(channel.api_, channel.comm_, channel.stream()));
        }
    }
}

template <typename Which>
void Queue::remove(const Which& which) {
    last_ = nullptr;
    for (Operation** at = &first_; *at != nullptr;) {
        if (which(**at)) {
            *at = std::exchange((*at)->next_, nullptr);
        } else {
            last_ = *at;
            at = &last_->next_;
        }
    }
}

void Queue::abort_all(const Status& why) {
    std::vector<std::future<void>> aborts; // their destructors wait
    for (Channel* const channel : channels_) {
        const Comm comm = std::exchange(channel->comm_, nullptr);
        if (comm == nullptr) continue;
        (void)channel->remember(Status::error(ONEBIT_ERROR_TRANSPORT,
                                              "nccl: aborted with another communicator of its stream, for: %s",
                                              why.message().c_str()));
        const auto abort = [comm, &api = channel->api_, device = channel->site_.device] {
            const cuda::OnDevice entered(*device);
            (void)api.comm_abort(comm);
        };
        try { // in a thread of its own: before NCCL 2.22, aborts can't be grouped
            aborts.push_back(std::async(std::launch::async, abort));
        } catch (const std::exception&) {
            abort();
        }
    }
}

// ------------------------------------------------------------------------------------------------------ Channel ----

Status Channel::create(const NcclApi& api, Comm comm, Site site, double timeout, std::shared_ptr<Queue> queue,
                       std::shared_ptr<Channel>* channel) {
    std::shared_ptr<Channel> made(new Channel(api, comm, std::move(site), timeout, std::move(queue)));
    made->queue_->join(*made);
    ONEBIT_RETURN_IF_ERROR(check(api, comm, api.comm_user_rank(comm, &made->rank_), "ncclCommUserRank"));
    ONEBIT_RETURN_IF_ERROR(check(api, comm, api.comm_count(comm, &made->size_), "ncclCommCount"));
    *channel = std::move(made);
    return {};
}

Status Channel::start(Operation& operation) {
    const cuda::OnDevice entered(device());
    ONEBIT_RETURN_IF_ERROR(broken_);
    operation.channel_ = this;
    used_ = true;
    queue_->add(operation);
    return advance();
}

Status Channel::advance() {
    const cuda::OnDevice entered(device());
    queue_->advance();
    bool in_progress = false;
    return look(&in_progress);
}

Status Channel::look(bool* in_progress) {
    ONEBIT_RETURN_IF_ERROR(broken_);
    Result state = kSuccess;
    const Result asked = api_.comm_get_async_error(comm_, &state);
    *in_progress = state == kInProgress;
    return remember(check(api_, comm_, asked == kSuccess ? state : asked, "nccl"));
}

void Channel::forget(Operation& operation) {
    const cuda::OnDevice entered(device());
    queue_->remove([&](const Operation& other) { return &other == &operation; });
    if (queue_->current() != &operation) return;
    // A thread of NCCL's is about to launch what works on the operation's memory.
    const Status status = remember(poll("nccl", timeout_, [&](bool* done) {
        const Status advanced = advance();
        *done = queue_->current() != &operation;
        return advanced;
    }));
    if (!status.ok()) abort();
    if (queue_->current() == &operation) queue_->drop_current();
}

/// Waits for the queue and the stream: nothing may be outstanding on a communicator that is split.
Status Channel::settle() {
    ONEBIT_RETURN_IF_ERROR(poll("nccl", timeout_, [&](bool* done) {
        const Status advanced = advance();
        *done = queue_->idle();
        return advanced;
    }));
    cuda::Event end;
    ONEBIT_RETURN_IF_ERROR(end.record(stream()));
    return poll("nccl", timeout_, [&](bool* done) {
        ONEBIT_RETURN_IF_ERROR(advance());
        return end.test(done);
    });
}

Status Channel::split(int color, int key, std::shared_ptr<Channel>* channel) {
    const cuda::OnDevice entered(device());
    ONEBIT_RETURN_IF_ERROR(broken_);
    Comm child = nullptr;
    ONEBIT_RETURN_IF_ERROR(remember(settle()));
    ONEBIT_RETURN_IF_ERROR(remember(split_comm(api_, comm_, color, key, timeout_, &child)));
    return create(api_, child, site_, timeout_, queue_, channel);
}

Status Channel::remember(Status status) {
    if (broken_.ok()) broken_ = status;
    return status;
}

void Channel::give_up() {
    const cuda::OnDevice entered(device());
    (void)remember(Status::error(ONEBIT_ERROR_TRANSPORT, "nccl: the communicator was given up"));
    abort();
}

void Channel::abort() {
    if (used_) {
        queue_->abort_all(broken_);
    } else if (const Comm comm = std::exchange(comm_, nullptr)) {
        (void)api_.comm_abort(comm);
    }
}

void Channel::close() {
    const cuda::OnDevice entered(device());
    queue_->remove([&](const Operation& operation) { return operation.channel_ == this; }); // they will never begin
    if (comm_ != nullptr) {
        const Status status = [&] {
            ONEBIT_RETURN_IF_ERROR(broken_);
            ONEBIT_RETURN_IF_ERROR(await(api_, comm_, "nccl", timeout_)); // for what is still in progress
            ONEBIT_RETURN_IF_ERROR(check(api_, comm_, api_.comm_finalize(comm_), "ncclCommFinalize"));
            return await(api_, comm_, "ncclCommFinalize", timeout_);
        }();
        if (status.ok()) {
            (void)api_.comm_destroy(std::exchange(comm_, nullptr));
        } else {
            (void)remember(status);
            abort();
        }
    }
    queue_->leave(*this);
    if (queue_->current() != nullptr && queue_->current()->channel_ == this) queue_->drop_current();
    (void)remember(Status::error(ONEBIT_ERROR_TRANSPORT, "nccl: the channel is closed"));
}

} // namespace onebit::nccl
