// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "transport/nccl_api.hpp"

namespace onebit_test {

/// NCCL without NCCL, on the emulated device: ranks are threads of this process, each with its stream. Each call on a
/// communicator that doesn't block is in progress for so many looks, and longer if the others aren't there yet; only
/// then does it happen, behind all that the stream was given up to then, and before anything that it was given earlier
/// is finished no other. One at a time; used from the main thread but for the table.
class EmulatedNccl {
  public:
    explicit EmulatedNccl(int busy_looks = 2);
    /// Fails the test where a communicator was neither destroyed nor aborted, or calls were made as they must not be.
    ~EmulatedNccl();
    EmulatedNccl(const EmulatedNccl&) = delete;
    EmulatedNccl& operator=(const EmulatedNccl&) = delete;

    static const onebit::NcclApi& api();
    /// The same of a version without ncclAlltoAll.
    static const onebit::NcclApi& older_api();

    /// A user's own, for each rank, on the GPU of number 0; they end with this.
    std::vector<ncclComm*> make_comms(int ranks, bool blocking);

    /// From now on all communicators of so numbered ranks, but users' own, have this error.
    static void fail(int rank, onebit::nccl::Result error, const std::string& text);

    /// How often all ranks together have made such a call, in the whole of a group where it ends one; of those that are
    /// in progress for a while.
    static int calls(const std::string& name);
    /// How many communicators have been aborted.
    static int aborted();
    /// What was wrong about the calls so far; the destructor then no longer minds.
    std::vector<std::string> take_complaints();
};

} // namespace onebit_test
