// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Shows the features of this build of onebit, the hardware that it finds on the machine, and the transports by which it
// would reach other ranks from GPUs' memory, with the reasons:
//
//     onebit_info
//     onebit_info --xml node17.xml --nodes 16     # another machine, as "lstopo node17.xml" dumped it there
//
// Start it without mpirun.

#include <mpi.h>
#include <onebit/onebit.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "compress/sign/kernels.hpp"
#include "topology/gpu_runtime.hpp"
#include "topology/hwloc_calls.hpp"
#include "topology/machine.hpp"
#include "topology/transports.hpp"

namespace {

struct Options {
    std::string xml;
    std::size_t nodes = 2;
    std::size_t ranks_per_node = 0; // one for each GPU, but at least one
};

void print_feature(const char* name, const std::string& value) {
    std::printf("  %-8s %s\n", name, value.c_str());
}

std::string mpi_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length); // may be called before MPI_Init
    const std::string version(text);
    return version.substr(0, version.find_first_of(",\n"));
}

std::string kernels() {
    std::string names;
    for (const onebit::SignKernels* kernels : onebit::available_sign_kernels()) {
        names += (names.empty() ? "" : ", ") + std::string(kernels->name);
    }
    return names;
}

std::string hwloc_version() {
    const onebit::HwlocCalls* hwloc = nullptr;
    const onebit::Status status = onebit::find_hwloc(&hwloc);
    if (!status.ok()) return "no: " + status.message();
    const unsigned version = hwloc->get_api_version();
    return "API " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff);
}

std::string state_of(const onebit::Runtime& runtime, const std::string& found) {
    return runtime.usable ? found : "no: " + runtime.why_not;
}

void print_build(const onebit::Runtime& cuda, int devices, const onebit::Runtime& nccl) {
    std::printf("onebit %s\n", onebit_version());
    print_feature("MPI", mpi_version());
    print_feature("kernels", kernels());
    print_feature("hwloc", hwloc_version());
    print_feature("CUDA", state_of(cuda, "driver for " + onebit::cuda_version_text(cuda.version) +
                                             ", devices: " + std::to_string(devices)));
    print_feature("NCCL", state_of(nccl, onebit::nccl_version_text(nccl.version)));
    std::printf("\n");
}

void print_choice(const char* what, const onebit::Machine& machine, const onebit::Surroundings& surroundings) {
    const onebit::TransportChoice choice = onebit::choose_transports(machine, surroundings);
    std::printf("  %-15s %s (%s)\n", what, onebit::transports_name(choice.transports), choice.reason.c_str());
}

int run(const Options& options) {
    int devices = 0;
    onebit::Surroundings surroundings;
    surroundings.cuda = onebit::find_cuda_driver(&devices);
    surroundings.nccl = onebit::find_nccl();
    onebit::Machine machine;
    const onebit::Status status = onebit::read_machine(options.xml.c_str(), &machine);
    print_build(surroundings.cuda, devices, surroundings.nccl);
    if (!status.ok()) {
        std::fflush(stdout);
        std::fprintf(stderr, "onebit_info: %s\n", status.message().c_str());
        return EXIT_FAILURE;
    }
    std::printf("%s\n", describe(machine).c_str());

    surroundings.ranks_per_node =
        options.ranks_per_node > 0 ? options.ranks_per_node : std::max<std::size_t>(machine.gpus.size(), 1);
    if (!options.xml.empty()) surroundings.cuda.usable = surroundings.nccl.usable = true;
    std::printf("transports (ranks per node: %zu%s):\n", surroundings.ranks_per_node,
                options.xml.empty() ? "" : "; CUDA and NCCL as they should be");
    print_choice("host memory", machine, surroundings);
    surroundings.device_memory = true;
    print_choice("GPU, one node", machine, surroundings);
    surroundings.nodes = options.nodes;
    if (options.nodes > 1) {
        const std::string what = "GPU, " + std::to_string(options.nodes) + " nodes";
        print_choice(what.c_str(), machine, surroundings);
    }
    return EXIT_SUCCESS;
}

int run_safely(const Options& options) {
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "onebit_info: %s\n", error.what());
    }
    return EXIT_FAILURE;
}

/// Reads another machine's dump in a child process: with some files hwloc crashes, never ends, or allocates much
/// memory. The child writes all its output at its end.
int run_apart(const Options& options) {
    const pid_t child = fork();
    if (child < 0) {
        std::perror("onebit_info: can't start a process to read the file in");
        return EXIT_FAILURE;
    }
    if (child == 0) {
        constexpr rlimit kSeconds = {20, 20};
        [[maybe_unused]] constexpr rlimit kBytes = {rlim_t{8} << 30, rlim_t{8} << 30};
        constexpr rlimit kNone = {0, 0};
        setrlimit(RLIMIT_CPU, &kSeconds);
#ifndef __SANITIZE_ADDRESS__ // the sanitizer itself maps more than that
        setrlimit(RLIMIT_AS, &kBytes);
#endif
        setrlimit(RLIMIT_CORE, &kNone);
        std::setvbuf(stdout, nullptr, _IOFBF, std::size_t{1} << 22);
        const int result = run_safely(options);
        std::fflush(stdout);
        _exit(result);
    }
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(how)) return WEXITSTATUS(how);
    std::fprintf(stderr, "onebit_info: %s: could not be read: hwloc did not survive it (signal %d, %s)\n",
                 options.xml.c_str(), WTERMSIG(how), strsignal(WTERMSIG(how)));
    return EXIT_FAILURE;
}

} // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Shows what onebit was built with, this machine's sockets, GPUs and NICs, and the transports between ranks.");
    app.add_option("--xml", options.xml, "Another machine, as hwloc's lstopo dumped it into this file");
    app.add_option("--nodes", options.nodes, "Nodes that the ranks are to run on")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--ranks-per-node", options.ranks_per_node, "Ranks on each of them [one for each GPU]")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    return options.xml.empty() ? run_safely(options) : run_apart(options);
}
