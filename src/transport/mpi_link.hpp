// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/abort_switch.hpp"
#include "core/status.hpp"
#include "core/wait.hpp"

namespace onebit {

/// What an MPI call returned, in words.
Status check_mpi(int code, const char* call);
/// Between MPI_Init and MPI_Finalize.
bool mpi_is_up();

/// The one MPI communicator that a onebit communicator and all its handles talk through. A channel is a range of tags
/// on it, so that making one asks nothing of MPI. Ranks tell each other through it that they give a channel up, or
/// everything (notices). MPI is asked for messages between two ranks and for nothing else: its collectives can't be
/// left when a peer has died.
class MpiLink {
  public:
    /// Of the first channel.
    static constexpr int kFirstTag = 1;

    /// Duplicates the user's communicator. Collective; blocks, no longer than `timeout` seconds (0: for ever).
    static Status create(MPI_Comm users, double timeout, std::shared_ptr<MpiLink>* link);
    ~MpiLink();
    MpiLink(const MpiLink&) = delete;
    MpiLink& operator=(const MpiLink&) = delete;

    MPI_Comm comm() const { return comm_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::shared_ptr<AbortSwitch>& abort_switch() const { return abort_switch_; }

    /// The first of so many tags of a new channel, which no other channel of this link ever has. The same on every rank
    /// that makes the same channels in the same order. Local; UNSUPPORTED when MPI's tags are used up.
    Status take_tags(int tags, int* first);

    /// Tells these ranks that this one gives up the channel whose first tag is `channel`. Never waits. The first notice
    /// needs no memory. A later one that has none is not sent; the others then wait until their own time is up.
    void tell(std::span<const int> ranks, int channel, const Status& why) noexcept;
    /// Looks whether a peer has told something. Costs an MPI_Iprobe.
    Status listen();
    /// What the first peer said that gave the channel up; else a success.
    Status heard(int channel) const;
    /// Whether this rank has given the channel up, or is known to have gone.
    bool has_told(int rank, int channel) const;

  private:
    struct Notice;
    static constexpr int kEverything = -1; ///< in the place of a channel

    /// Without a communicator of its own yet. `users`: of the same ranks.
    explicit MpiLink(MPI_Comm users);
    bool tell_all(const Status& why) noexcept;
    void make_spare();
    void keep(int from, const Notice& notice);

    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 0;
    int last_tag_ = 0;          ///< that this MPI has
    std::vector<int> everyone_; ///< all ranks
    std::atomic<int> next_tag_;
    std::shared_ptr<AbortSwitch> abort_switch_ = std::make_shared<AbortSwitch>();

    mutable std::mutex mutex_; ///< of all below
    struct Heard {
        Status first;
        std::vector<int> ranks;
    };
    std::map<int, Heard> heard_; ///< by channel
    std::atomic<bool> has_heard_ = false;
    struct Sent;
    std::unique_ptr<std::list<Sent>> sent_; ///< notices that may still be under way
    std::list<Sent> spare_;                 ///< room for the next one
    bool abandoned_ = false;                ///< messages may still be under way
};

} // namespace onebit
