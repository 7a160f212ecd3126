// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "transport/nccl_api.hpp"

namespace onebit_test {

/// NCCL without NCCL, on the emulated device: ranks are threads of this process, each with its stream. A call on a
/// non-blocking communicator is in progress for `busy_looks` looks, and longer until the other ranks are there. Then
/// the call takes effect, after all earlier work of the stream and before any later work. One object at a time. Used
/// from the main thread, except the table's functions.
class EmulatedNccl {
  public:
    explicit EmulatedNccl(int busy_looks = 2);
    /// Fails the test where a communicator was neither destroyed nor aborted, or calls were made as they must not be.
    ~EmulatedNccl();
    EmulatedNccl(const EmulatedNccl&) = delete;
    EmulatedNccl& operator=(const EmulatedNccl&) = delete;

    static const onebit::NcclApi& api();
    /// The table of a version without ncclAlltoAll.
    static const onebit::NcclApi& older_api();

    /// A user's own communicators, one for each rank, on GPU 0; they end with this object.
    std::vector<ncclComm*> make_comms(int ranks, bool blocking);

    /// From now on all communicators of ranks with this number, except users' own, have this error.
    static void fail(int rank, onebit::nccl::Result error, const std::string& text);

    /// How often all ranks together have made such a call, in the whole of a group where it ends one; of those that are
    /// in progress for a while.
    static int calls(const std::string& name);
    /// How many communicators have been aborted.
    static int aborted();
    /// The errors in the calls so far; the destructor no longer fails the test for them.
    std::vector<std::string> take_complaints();
};

} // namespace onebit_test
