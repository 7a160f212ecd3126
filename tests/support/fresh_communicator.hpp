// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/ranks.hpp"

namespace onebit_test {

// This rank's end of another communicator of the same ranks. Collective.
inline onebit_comm_t fresh_communicator(onebit_comm_t of, RankLog& log) {
    onebit_comm_t fresh = nullptr;
    ONEBIT_EXPECT_OK(log, onebit_comm_split(of, 0, log.rank(), &fresh));
    return fresh;
}

// The same, destroyed with the object; for tests that may break it.
class FreshCommunicator {
  public:
    FreshCommunicator(onebit_comm_t of, RankLog& log) : log_(log), comm_(fresh_communicator(of, log)) {}
    ~FreshCommunicator() { ONEBIT_EXPECT_OK(log_, onebit_comm_destroy(comm_)); }
    FreshCommunicator(const FreshCommunicator&) = delete;
    FreshCommunicator& operator=(const FreshCommunicator&) = delete;

    onebit_comm_t get() const { return comm_; }

  private:
    RankLog& log_;
    onebit_comm_t comm_;
};

} // namespace onebit_test
