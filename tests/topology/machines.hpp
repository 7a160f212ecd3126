// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The machines whose dumps lie in machines/.
#pragma once

#include <string>

#include "support/catch2.hpp"
#include "topology/machine.hpp"

namespace onebit_test {

inline std::string dump_of(const char* name) {
    return std::string(ONEBIT_TEST_MACHINES).append(name).append(".xml");
}

inline onebit::Machine machine_of(const char* name) {
    onebit::Machine machine;
    const onebit::Status status = onebit::read_machine(dump_of(name).c_str(), &machine);
    INFO(status.message());
    REQUIRE(status.ok());
    return machine;
}

} // namespace onebit_test
