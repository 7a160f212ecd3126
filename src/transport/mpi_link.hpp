// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "core/status.hpp"
#include "transport/link.hpp"

namespace onebit {

/// What an MPI call returned, in words.
Status check_mpi(int code, const char* call);
/// Between MPI_Init and MPI_Finalize.
bool mpi_is_up();

/// The one MPI communicator that a onebit communicator and all its handles talk through. MPI is asked for messages
/// between two ranks and for nothing else: its collectives can't be left when a peer has died.
class MpiLink final : public Link {
  public:
    /// Duplicates the user's communicator. Collective; blocks, no longer than `timeout` seconds (0: for ever).
    static Status create(MPI_Comm users, double timeout, std::shared_ptr<MpiLink>* link);
    ~MpiLink() override;

    const char* name() const override { return "mpi"; }
    MPI_Comm comm() const { return comm_; }

    void tell(std::span<const int> ranks, int channel, const Status& why) noexcept override;

  private:
    /// Without a communicator of its own yet, of the same ranks as the user's.
    MpiLink(int rank, int size);
    /// Costs an MPI_Iprobe.
    Status look_for_notices() override;
    bool tell_all(const Status& why) noexcept;
    void make_spare();

    MPI_Comm comm_ = MPI_COMM_NULL;
    std::mutex mutex_; ///< of all below; held by whoever looks for notices
    struct Sent;
    std::unique_ptr<std::list<Sent>> sent_; ///< notices that may still be under way
    std::list<Sent> spare_;                 ///< room for the next one
    bool abandoned_ = false;                ///< messages may still be under way
};

} // namespace onebit
