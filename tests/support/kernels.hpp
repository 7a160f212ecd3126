// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Instruction sets, for tests in one process alone: the environment chooses one when a communicator is created.
#pragma once

#include <onebit/onebit.h>

#include "support/environment.hpp"

namespace onebit_test {

// Whether this machine has it.
inline bool available(const char* name) {
    const Variable chosen("ONEBIT_KERNELS", name);
    onebit_comm_t comm = nullptr;
    if (onebit_comm_create_loopback(1, &comm) != ONEBIT_SUCCESS) return false;
    onebit_comm_destroy(comm);
    return true;
}

} // namespace onebit_test
