// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Machines as lstopo dumps them: one is read and described, and transports chosen for it, or it is INVALID_ARGUMENT.
#include <algorithm>
#include <fstream>
#include <string>

#include "fuzz/fuzzing.hpp"
#include "topology/hwloc_calls.hpp"
#include "topology/machine.hpp"
#include "topology/transports.hpp"

// hwloc leaks what it has read of a damaged dump.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0";
}

namespace {

// While one topology is open hwloc needn't look for its plugins at each further one, which takes longer than all else.
hwloc_topology_t open_one() {
    const onebit::HwlocCalls* calls = nullptr;
    FUZZ_REQUIRE(onebit::find_hwloc(&calls).ok());
    hwloc_topology_t topology = nullptr;
    FUZZ_REQUIRE(calls->topology_init(&topology) == 0);
    return topology;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const onebit_fuzz::Directory directory("machines");
    [[maybe_unused]] static const hwloc_topology_t open = open_one();
    const std::string name = directory.file("machine.xml");
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    onebit::Machine machine;
    const onebit::Status status = onebit::read_machine(name.c_str(), &machine);
    directory.clear();
    FUZZ_REQUIRE(status.ok() || status.code() == ONEBIT_ERROR_INVALID_ARGUMENT);
    if (!status.ok()) return 0;
    FUZZ_REQUIRE(!onebit::describe(machine).empty());
    for (const std::size_t nodes : {1, 4}) {
        for (const bool libraries : {false, true}) {
            onebit::Surroundings surroundings;
            surroundings.nodes = nodes;
            surroundings.ranks_per_node = std::max<std::size_t>(machine.gpus.size(), 1);
            surroundings.device_memory = true;
            if (libraries) surroundings.cuda = surroundings.nccl = {true, 99999, ""};
            FUZZ_REQUIRE(!onebit::choose_transports(machine, surroundings).reason.empty());
        }
    }
    return 0;
}
