// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL's own transport between processes, as a user's communicator, on as many GPUs as there are, be it one: ranks that
// tell NCCL different names of their host (NCCL_HOSTID) may share a GPU, and talk through sockets.
//
//     onebit_nccl_processes [RANKS]    2 and 4 ranks by default
//
// Each rank computes what the host's handles of all ranks give, as threads of its own, and compares the bits. Exit
// status 77: there is no GPU or no NCCL, or NCCL doesn't let so many ranks share what there is.

#include <cuda_runtime.h>
#include <onebit/onebit_nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <onebit/onebit.hpp>
#include <string>
#include <thread>
#include <vector>

#include "compress/device_memory.hpp"
#include "support/data.hpp"
#include "transport/nccl_channel.hpp"

namespace {

using namespace onebit_test;

constexpr int kSkipped = 77;
constexpr int kFailed = 1;
/// Chunks of unequal lengths, which go as messages; and of equal ones, for which NCCL has calls of its own.
constexpr std::array<std::size_t, 2> kCounts = {100035, std::size_t{1} << 16};
constexpr int kSteps = 3;
constexpr int kTimeout = 30; // seconds

struct Form {
    onebit_algorithm_t algorithm;
    const char* name;
};
constexpr std::array kForms = {Form{ONEBIT_ALGORITHM_FLAT, "flat"}, Form{ONEBIT_ALGORITHM_PIPELINED, "pipelined"},
                               Form{ONEBIT_ALGORITHM_TWO_LEVEL, "two levels"}, Form{ONEBIT_ALGORITHM_DENSE, "dense"}};

/// What the processes share.
struct Opening {
    onebit::nccl::UniqueId id;
    std::atomic<int> there = 0; ///< 1: the id is; -1: it won't come
};

onebit_allreduce_config_t config_of(const Form& form, std::size_t count) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    config.algorithm = form.algorithm;
    return config;
}

std::vector<float> input_of(std::size_t count, int rank, int step) {
    return make_data(Kind::gaussian, count, 1, rank, static_cast<std::uint64_t>(step));
}

/// By step, the same on all ranks. What fails here ends the process.
std::vector<std::vector<float>> averages_on_the_host(int ranks, const Form& form, std::size_t count) {
    std::vector<onebit::Communicator> communicators = onebit::Communicator::loopback(ranks);
    std::vector<std::vector<float>> averages(kSteps, std::vector<float>(count));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            onebit::Allreduce handle(communicators[static_cast<std::size_t>(rank)], config_of(form, count));
            std::vector<float> values;
            for (int step = 0; step < kSteps; ++step) {
                values = input_of(count, rank, step);
                handle.run(values.data(), values.data());
                if (rank == 0) averages[static_cast<std::size_t>(step)] = values;
            }
        });
    }
    threads.clear(); // joins them
    return averages;
}

bool agrees(const Form& form, const std::vector<float>& values, const std::vector<float>& expected) {
    if (form.algorithm != ONEBIT_ALGORITHM_DENSE) {
        return std::memcmp(values.data(), expected.data(), expected.size() * sizeof(float)) == 0;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) { // NCCL adds up in an order of its own
        if (!(std::abs(values[i] - expected[i]) <= 1e-5F)) return false;
    }
    return true;
}

/// Whether all that came out is right.
bool compare(const onebit::Communicator& communicator, cudaStream_t stream, const Form& form, std::size_t count) {
    const std::vector<std::vector<float>> expected = averages_on_the_host(communicator.size(), form, count);
    onebit_allreduce_config_t config = config_of(form, count);
    config.memory = ONEBIT_MEMORY_CUDA;
    onebit::Allreduce handle(communicator, config);
    bool right = true;
    for (int step = 0; step < kSteps; ++step) {
        const onebit::DeviceArray<float> values(input_of(count, communicator.rank(), step));
        handle.run(values.data(), values.data());
        right = cudaStreamSynchronize(stream) == cudaSuccess && right;
        right = agrees(form, values.get(), expected[static_cast<std::size_t>(step)]) && right;
    }
    right = handle.info().algorithm == form.algorithm && std::string(handle.info().transport) == "nccl" && right;
    if (communicator.rank() == 0 || !right) {
        std::printf("rank %d of %d, %s, %zu elements: %s\n", communicator.rank(), communicator.size(), form.name, count,
                    right ? "the host's averages" : "FAILED: not the host's averages");
    }
    return right;
}

/// The exit status.
int skip(int rank, const std::string& why) {
    std::printf("rank %d: skipped: %s\n", rank, why.c_str());
    return kSkipped;
}
int fail(int rank, const std::string& why) {
    std::printf("rank %d FAILED: %s\n", rank, why.c_str());
    return kFailed;
}

/// The id comes from rank 0, through memory that they share.
onebit::Status join(const onebit::NcclApi& api, Opening& opening, int rank, int ranks, onebit::nccl::Comm* comm) {
    if (rank == 0) {
        const onebit::Status made =
            onebit::nccl::check(api, nullptr, api.get_unique_id(&opening.id), "ncclGetUniqueId");
        opening.there = made.ok() ? 1 : -1;
        ONEBIT_RETURN_IF_ERROR(made);
    }
    ONEBIT_RETURN_IF_ERROR(onebit::nccl::poll("the id", kTimeout, [&](bool* done) {
        *done = opening.there != 0;
        return onebit::Status();
    }));
    if (opening.there < 0) return onebit::Status::error(ONEBIT_ERROR_TRANSPORT, "rank 0 got no id");
    return onebit::nccl::join_comm(api, opening.id, ranks, rank, kTimeout, comm);
}

/// NCCL doesn't let ranks share a GPU, in the words of the versions that say so.
bool refuses_to_share(const onebit::Status& joined) {
    return joined.code() == ONEBIT_ERROR_TRANSPORT && (joined.message().find("Duplicate GPU") != std::string::npos ||
                                                       joined.message().find("invalid usage") != std::string::npos);
}

int run_rank(Opening& opening, int rank, int ranks) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return skip(rank, "there is no GPU");
    if (const cudaError_t set = cudaSetDevice(rank % devices); set != cudaSuccess) {
        return fail(rank, std::string("cudaSetDevice: ") + cudaGetErrorString(set));
    }
    const onebit::NcclApi* api = nullptr;
    if (const onebit::Status found = onebit::find_nccl_api(&api); !found.ok()) return skip(rank, found.message());
    onebit::nccl::Comm comm = nullptr;
    if (const onebit::Status joined = join(*api, opening, rank, ranks, &comm); !joined.ok()) {
        const bool refused = ranks > devices && refuses_to_share(joined);
        return refused ? skip(rank, joined.message()) : fail(rank, joined.message());
    }
    cudaStream_t stream = nullptr;
    bool right = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    {
        onebit_comm_t handle = nullptr;
        onebit::check(onebit_comm_create_nccl(comm, stream, &handle));
        const onebit::Communicator communicator(handle);
        for (const Form& form : kForms) {
            // Of two nodes or more, with two ranks each.
            if (form.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && (ranks < 4 || ranks % 2 != 0)) continue;
            for (const std::size_t count : kCounts) right = compare(communicator, stream, form, count) && right;
        }
    }
    right = onebit::nccl::check(*api, nullptr, api->comm_destroy(comm), "ncclCommDestroy").ok() && right;
    return right ? 0 : kFailed;
}

[[noreturn]] void be_rank(Opening& opening, int rank, int ranks) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // none outlives the test
    setenv("ONEBIT_NODE_SIZE", "2", 1);
    setenv("ONEBIT_TIMEOUT", std::to_string(kTimeout).c_str(), 1);
    setenv("NCCL_HOSTID", ("onebit-rank-" + std::to_string(rank)).c_str(), 1);
    // Whoever has set these otherwise knows why: "hosts" that are one are reached without a network.
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MNNVL_ENABLE", "0", 0);
    setenv("NCCL_DEBUG", "WARN", 0);
    int code = kFailed;
    try {
        code = run_rank(opening, rank, ranks);
    } catch (const std::exception& error) {
        code = fail(rank, error.what());
    }
    std::fflush(stdout);
    _exit(code); // whatever NCCL still has going on
}

void stop(const std::vector<pid_t>& processes) {
    for (const pid_t process : processes) kill(process, SIGKILL);
    for (const pid_t process : processes) waitpid(process, nullptr, 0);
}

/// Takes out those that have come to an end, and returns the worst exit status: any but 0 and "skipped" is "failed".
int reap(std::vector<pid_t>* processes) {
    int worst = 0;
    std::erase_if(*processes, [&](pid_t process) {
        int state = 0;
        if (waitpid(process, &state, WNOHANG) == 0) return false;
        const int code = WIFEXITED(state) ? WEXITSTATUS(state) : kFailed;
        if (code == kSkipped && worst == 0) worst = kSkipped;
        if (code != kSkipped && code != 0) worst = kFailed;
        return true;
    });
    return worst;
}

/// The worst exit status of the ranks, each a process. CUDA is begun in them alone, as it doesn't live through a fork.
int run_ranks(int ranks) {
    void* const shared = mmap(nullptr, sizeof(Opening), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return kFailed;
    Opening& opening = *new (shared) Opening;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) be_rank(opening, rank, ranks);
        if (process < 0) {
            stop(processes);
            return kFailed;
        }
        processes.push_back(process);
    }
    using Clock = std::chrono::steady_clock;
    const auto in = [](double seconds) {
        return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    };
    Clock::time_point end = in(2 * kTimeout);
    int worst = 0;
    while (!processes.empty() && Clock::now() < end) {
        const int code = reap(&processes);
        if (code != 0 && worst == 0) end = in(kTimeout / 4); // the others wait for it, or say why they don't
        if (code != 0 && worst != kFailed) worst = code;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (processes.empty()) return worst;
    std::printf("FAILED: %zu of %d ranks didn't come to an end\n", processes.size(), ranks);
    stop(processes);
    return kFailed;
}

} // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // what was printed before a crash is in the log
    std::vector<int> sizes = {2, 4};
    if (argc > 1) sizes = {std::atoi(argv[1])};
    if (argc > 2 || sizes.front() < 1) {
        std::fprintf(stderr, "usage: onebit_nccl_processes [RANKS]\n");
        return kFailed;
    }
    bool failed = false;
    bool passed = false;
    for (const int ranks : sizes) {
        std::fflush(stdout); // or each rank has what is left in there
        const int code = run_ranks(ranks);
        failed = failed || code == kFailed;
        passed = passed || code == 0;
        std::printf("%d ranks over NCCL: %s\n", ranks, code == 0 ? "passed" : code == kSkipped ? "skipped" : "FAILED");
    }
    return failed ? kFailed : passed ? 0 : kSkipped;
}
