// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Dumps of machines from lstopo: one is read, described and used to choose transports, or it is INVALID_ARGUMENT.
#include <dlfcn.h>
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "fuzz/fuzzing.hpp"
#include "topology/hwloc_calls.hpp"
#include "topology/machine.hpp"
#include "topology/transports.hpp"

// hwloc leaks the data that it has read of a damaged dump. A damaged index makes hwloc ask for bitmaps of 256 MiB,
// which took nine tenths of the target's time: these allocations fail here.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
    return "detect_leaks=0:max_allocation_size_mb=32:allocator_may_return_null=1:quarantine_size_mb=1:"
           "thread_local_quarantine_size_kb=16:malloc_context_size=4";
}

namespace {

// While one topology is open hwloc doesn't search for its plugins at each further one: the slowest part by far.
hwloc_topology_t open_one() {
    const onebit::HwlocCalls* calls = nullptr;
    FUZZ_REQUIRE(onebit::find_hwloc(&calls).ok());
    hwloc_topology_t topology = nullptr;
    FUZZ_REQUIRE(calls->topology_init(&topology) == 0);
    return topology;
}

// hwloc itself crashes on one damaged dump in a few hundred. No promise is broken, because onebit_info reads dumps in a
// child process. A jump out of hwloc takes less time than another process. libFuzzer reports crashes anywhere else.
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
sigjmp_buf before_reading;
volatile sig_atomic_t reads = 0;
struct sigaction others_actions[NSIG] = {};

bool is_in_hwloc() {
    void* callers[64];
    const int depth = backtrace(callers, 64);
    return std::any_of(callers, callers + depth, [](void* caller) {
        Dl_info found = {};
        return dladdr(caller, &found) != 0 && std::strstr(found.dli_fname, "libhwloc") != nullptr;
    });
}

void on_crash(int signal, siginfo_t* info, void* context) {
    if (reads != 0 && is_in_hwloc()) siglongjmp(before_reading, 1);
    others_actions[signal].sa_sigaction(signal, info, context);
}

bool catch_crashes() {
    struct sigaction action = {};
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return std::all_of(std::begin(kCrashes), std::end(kCrashes),
                       [&action](int signal) { return sigaction(signal, &action, &others_actions[signal]) == 0; });
}

// False where hwloc crashed; what it had allocated is lost.
bool read(const char* name, onebit::Machine* machine, onebit::Status* status) {
    if (sigsetjmp(before_reading, 1) != 0) {
        reads = 0;
        return false;
    }
    reads = 1;
    *status = onebit::read_machine(name, machine);
    reads = 0;
    return true;
}

} // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const onebit_fuzz::Directory directory("machines");
    [[maybe_unused]] static const hwloc_topology_t open = open_one();
    const std::string name = directory.file("machine.xml");
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    static const bool catches = catch_crashes();
    FUZZ_REQUIRE(catches);
    onebit::Machine machine;
    onebit::Status status;
    const bool was_read = read(name.c_str(), &machine, &status);
    directory.clear();
    if (!was_read) return 0;
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
