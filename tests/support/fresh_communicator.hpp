// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

// Another communicator of the same ranks, this one's end of it. Collective.
inline onebit_comm_t fresh_communicator(RankLog& log) {
    std::vector<onebit_comm_t> comms(static_cast<std::size_t>(log.size()));
    if (log.rank() == 0) ONEBIT_EXPECT_OK(log, onebit_comm_create_loopback(log.size(), comms.data()));
    const Bytes all = log.gather_bytes(comms.data(), comms.size() * sizeof(onebit_comm_t)).front();
    onebit_comm_t own = nullptr;
    std::memcpy(&own, all.data() + static_cast<std::size_t>(log.rank()) * sizeof own, sizeof own);
    return own;
}

// The same with its end; for what may break one.
class FreshCommunicator {
  public:
    explicit FreshCommunicator(RankLog& log) : log_(log), comm_(fresh_communicator(log)) {}
    ~FreshCommunicator() { ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(comm_)); }
    FreshCommunicator(const FreshCommunicator&) = delete;
    FreshCommunicator& operator=(const FreshCommunicator&) = delete;

    onebit_comm_t get() const { return comm_; }

  private:
    RankLog& log_;
    onebit_comm_t comm_;
};

} // namespace onebit_test
