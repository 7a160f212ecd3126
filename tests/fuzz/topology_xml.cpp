// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Machines as lstopo dumps them: one is read and described, and transports chosen for it, or it is INVALID_ARGUMENT.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "fuzz/fuzzing.hpp"
#include "topology/machine.hpp"
#include "topology/transports.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const std::string name = "/dev/shm/onebit-fuzz-" + std::to_string(getpid()) + ".xml";
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    onebit::Machine machine;
    const onebit::Status status = onebit::read_machine(name.c_str(), &machine);
    FUZZ_REQUIRE(status.ok() || status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    if (!status.ok()) return 0;
    FUZZ_REQUIRE(!onebit::describe(machine).empty());
    return 0;
}
