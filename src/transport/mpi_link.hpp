// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "core/status.hpp"
#include "transport/link.hpp"
#include "transport/mpi_calls.hpp"

namespace onebit {

/// What an MPI call returned, in words.
Status check_mpi(const MpiCalls& calls, int code, const char* call);

/// The one MPI communicator that a onebit communicator and all its handles talk through. MPI is asked only for messages
/// between two ranks, because MPI's collectives can't be left when a peer has died.
class MpiLink final : public Link {
  public:
    /// Duplicates the user's communicator. Collective; blocks, no longer than `timeout` seconds (0: for ever).
    static Status create(const MpiCalls& calls, MpiCalls::Handle users, double timeout, std::shared_ptr<MpiLink>* link);
    ~MpiLink() override;
    MpiLink(const MpiLink&) = delete;
    MpiLink& operator=(const MpiLink&) = delete;

    const char* name() const override { return "mpi"; }
    const MpiCalls& calls() const { return calls_; }
    MpiCalls::Handle comm() const { return comm_; }
    std::uint64_t node_identity() const { return node_identity_; }
    bool is_cuda_aware() const { return cuda_aware_; }
    /// Whether MPI may still be called: MPI_Finalize has not begun.
    static Status check_up() { return mpi_ended ? finalised() : Status(); }
    /// What an MPI call returned, in words.
    Status check(int code, const char* call) const { return check_mpi(calls_, code, call); }

    void tell(std::span<const int> ranks, int channel, const Status& why) noexcept override;
    bool try_tell(std::span<const int> ranks, int channel, const Status& why) noexcept override;
    bool takes_any_thread() const override { return thread_level_ == MpiCalls::kMultiple; }

  private:
    /// With the ranks of the user's communicator, and no communicator of its own yet.
    MpiLink(const MpiCalls& calls, int rank, int size);
    /// For a rank without memory for a link: tells the other ranks, on the duplicate that all ranks make together.
    static void take_part_without_memory(const MpiCalls& calls, MpiCalls::Handle users, double timeout, int rank,
                                         int size);
    /// Costs a probe.
    Status look_for_notices() override;
    void make_spare();
    static Status finalised(); ///< what check_up() returns after that

    static inline std::atomic<bool> mpi_ended = false; ///< MPI_Finalize has begun
    MpiCalls calls_;
    MpiCalls::Handle comm_;
    // Asked for once, because handles may be made and destroyed when MPI can't be asked any more.
    MpiCalls::ThreadLevel thread_level_;
    bool cuda_aware_;
    std::uint64_t node_identity_;
    std::mutex mutex_; ///< guards all below; held by the thread that looks for notices
    struct Sent;
    std::unique_ptr<std::list<Sent>> sent_; ///< notices that may still be under way
    std::list<Sent> spare_;                 ///< room for the next one
    bool abandoned_ = false;                ///< messages may still be under way
};

} // namespace onebit
