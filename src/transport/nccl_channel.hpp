// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "core/cuda/device.hpp"
#include "core/status.hpp"
#include "transport/nccl_api.hpp"

namespace onebit::nccl {

/// A result of NCCL's as a Status, with what it says about it; "in progress" is none of the errors.
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

/// A communicator of the parent's ranks of one color, ordered by key, that doesn't block. Where the parent itself does,
/// so does this, with no timeout.
Status split_comm(const NcclApi& api, Comm parent, int color, int key, double timeout, Comm* child);

/// A communicator that doesn't block, of those who come with the same id.
Status join_comm(const NcclApi& api, const UniqueId& id, int ranks, int rank, double timeout, Comm* comm);

/// What a channel gives to NCCL in one go.
class Operation {
  public:
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

  protected:
    Operation() = default;
    ~Operation() = default;

  private:
    friend class Channel;
    /// Makes the calls.
    virtual Status issue(const NcclApi& api, Comm comm, cuda::Stream stream) = 0;
    /// NCCL has put them into the stream: what is given to the stream from now on is behind them.
    virtual Status accepted(cuda::Stream stream) = 0;

    Operation* next_ = nullptr;
};

/// A communicator of our own. One operation at a time is handed to NCCL, which may take a while to put it into the
/// stream (it may have to connect first); until then no other call may be made, and the next ones wait here.
class Channel {
  public:
    /// Takes over the communicator.
    static Status create(const NcclApi& api, Comm comm, cuda::Stream stream, double timeout,
                         std::shared_ptr<Channel>* channel);
    ~Channel() { close(); }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    double timeout() const { return timeout_; }
    cuda::DeviceMemory& memory() { return memory_; }

    /// Behind all that were started before.
    Status start(Operation& operation);
    /// Sees how far NCCL has come, and hands it what waits; tells what has gone wrong since, with any operation.
    Status advance();
    /// The operation is about to go: takes it back, or waits until NCCL no longer needs it.
    void forget(Operation& operation);

    /// Another one of this one's ranks of one color, ordered by key. Collective; blocks, also for the stream.
    Status split(int color, int key, std::shared_ptr<Channel>* channel);

    void give_up();
    /// Gives the communicator back; nothing can be started afterwards. Collective; blocks.
    void close();

    std::uint64_t bytes_sent = 0;

  private:
    Channel(const NcclApi& api, Comm comm, cuda::Stream stream, double timeout)
        : api_(api), comm_(comm), stream_(stream), timeout_(timeout), memory_(stream) {}

    Status look(bool* in_progress);
    Status advance_unbroken();
    Status settle();
    Status remember(Status status);
    void abort();

    const NcclApi& api_;
    Comm comm_;
    cuda::Stream stream_;
    double timeout_;
    cuda::DeviceMemory memory_;
    int rank_ = 0;
    int size_ = 0;
    Operation* current_ = nullptr; ///< with NCCL, but not in the stream yet
    Operation* first_ = nullptr;   ///< of those that wait
    Operation* last_ = nullptr;
    Status broken_;
};

} // namespace onebit::nccl
