// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/abort_switch.hpp"
#include "core/cuda/device.hpp"
#include "core/status.hpp"
#include "transport/nccl_api.hpp"

namespace onebit::nccl {

/// A result of NCCL's as a Status, with what NCCL says about it; "in progress" is no error.
Status check(const NcclApi& api, Comm comm, Result result, const char* call);

/// Calls look(&done) until it is done. TIMEOUT, naming `what`, after `timeout` seconds (0: never).
template <typename Look>
Status poll(const char* what, double timeout, const Look& look) {
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
        bool done = false;
        ONEBIT_RETURN_IF_ERROR(look(&done));
        if (done) return {};
        sched_yield();
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
        if (timeout > 0 && waited.count() >= timeout) {
            return Status::error(ONEBIT_ERROR_TIMEOUT, "%s: no answer from a peer for %g seconds (ONEBIT_TIMEOUT)",
                                 what, timeout);
        }
    }
}

/// A communicator of the parent's ranks of one color, ordered by key, that doesn't block. If the parent itself blocks,
/// this call blocks, too, with no timeout.
Status split_comm(const NcclApi& api, Comm parent, int color, int key, double timeout, Comm* child);

/// A communicator that doesn't block, of the ranks that come with the same id.
Status join_comm(const NcclApi& api, const UniqueId& id, int ranks, int rank, double timeout, Comm* comm);

class Channel;

/// Work that a channel gives to NCCL at once.
class Operation {
  public:
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

  protected:
    Operation() = default;
    ~Operation() = default;

  private:
    friend class Channel;
    friend class Queue;
    /// Makes the calls.
    virtual Status issue(const NcclApi& api, Comm comm, cuda::Stream stream) = 0;
    /// NCCL has put the calls into the stream: work given to the stream from now on is behind them.
    virtual Status accepted(cuda::Stream stream) = 0;

    Channel* channel_ = nullptr; ///< once started
    Operation* next_ = nullptr;
};

/// The operations of all channels that come from one channel, and so share a stream, in the order of their starts. The
/// queue hands one operation at a time to NCCL. NCCL may take a while to put it into the stream (it may have to connect
/// first, in a thread of its own). Until then no other call may be made on that communicator. A call on another
/// communicator might overtake the operation on some ranks and not on others.
class Queue {
  public:
    void add(Operation& operation);
    /// Sees how far NCCL has come with its operation, and hands it the next. Each channel keeps its own failures.
    void advance();
    /// Takes out the waiting operations for which `which` is true.
    template <typename Which>
    void remove(const Which& which);

    bool idle() const { return current_ == nullptr && first_ == nullptr; }
    Operation* current() const { return current_; }
    void drop_current() { current_ = nullptr; }

    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }
    void join(Channel& channel) { channels_.push_back(&channel); }
    void leave(Channel& channel) { std::erase(channels_, &channel); }
    /// Aborts all channels at once, for the reason `why`: the stream is stuck for all of them. NCCL waits until the
    /// stream has come to a communicator's last work, so one whose turn is later would wait for those before it.
    void abort_all(const Status& why);

  private:
    std::shared_ptr<AbortSwitch> abort_switch_ = std::make_shared<AbortSwitch>();
    std::vector<Channel*> channels_;
    Operation* current_ = nullptr; ///< with NCCL, but not in the stream yet
    Operation* first_ = nullptr;   ///< of those that wait
    Operation* last_ = nullptr;
};

/// Where a channel's work is done.
struct Site {
    std::shared_ptr<const cuda::Device> device; ///< the communicator's, and the stream's
    cuda::Stream stream;
};

/// A communicator of our own. Each call on it is made on its GPU, whichever is current.
class Channel {
  public:
    /// Takes over the communicator. `queue`: of the channel that it comes from.
    static Status create(const NcclApi& api, Comm comm, Site site, double timeout, std::shared_ptr<Queue> queue,
                         std::shared_ptr<Channel>* channel);
    ~Channel() { close(); }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    const NcclApi& api() const { return api_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    double timeout() const { return timeout_; }
    cuda::Stream stream() const { return site_.stream; }
    const cuda::Device& device() const { return *site_.device; }
    cuda::DeviceMemory& memory() { return memory_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return queue_->abort_switch(); }

    /// Starts it behind all that were started before.
    Status start(Operation& operation);
    /// Advances the queue; tells what has gone wrong with this channel, in any operation.
    Status advance();
    /// The operation is about to be destroyed: takes it back, or waits until NCCL no longer needs it.
    void forget(Operation& operation);

    /// A new channel of this channel's ranks of one color, ordered by key. Collective; blocks, also for the stream.
    Status split(int color, int key, std::shared_ptr<Channel>* channel);

    /// Gives up this channel and, if it has given the stream any work, all channels that share the stream.
    void give_up();
    /// Gives the communicator back; nothing can be started afterwards. Collective; blocks.
    void close();

    std::uint64_t bytes_sent = 0;

  private:
    friend class Queue;

    Channel(const NcclApi& api, Comm comm, Site site, double timeout, std::shared_ptr<Queue> queue)
        : api_(api),
          comm_(comm),
          site_(std::move(site)),
          timeout_(timeout),
          memory_(site_.stream),
          queue_(std::move(queue)) {}

    Status look(bool* in_progress);
    Status settle();
    Status remember(Status status);
    void abort();

    const NcclApi& api_;
    Comm comm_; ///< NULL once it is gone; then broken_ says why
    Site site_;
    double timeout_;
    cuda::DeviceMemory memory_;
    std::shared_ptr<Queue> queue_;
    int rank_ = 0;
    int size_ = 0;
    bool used_ = false; ///< something was started
    Status broken_;
};

} // namespace onebit::nccl
