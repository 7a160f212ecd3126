// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// NCCL's own transport between processes, as a user's communicator, on all GPUs of the machine, even a single one:
// ranks that tell NCCL different names of their host (NCCL_HOSTID) may share a GPU, and talk through sockets.
//
//     onebit_nccl_processes [RANKS]                            2 and 4 ranks by default
//     onebit_nccl_processes --time ELEMENTS... [--json FILE]   2 ranks
//
// Each rank computes the results of the host's handles of all ranks, with threads of its own, and compares the bits; or
// calls are timed. Exit status 77: there is no GPU or no NCCL, or NCCL doesn't let that many ranks share the GPUs.

#include <cuda_runtime.h>
#include <onebit/onebit_nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <onebit/onebit.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

/// The options of the command line.
struct Options {
    std::vector<int> ranks = {2, 4};
    std::vector<std::size_t> timed; ///< numbers of elements; none: results are compared
    std::string json;
};

/// What the processes share.
struct Opening {
    onebit::nccl::UniqueId id;
    std::atomic<int> there = 0; ///< 1: the id is; -1: it won't come
    std::atomic<int> arrived = 0;
    std::atomic<int> meetings = 0;
};

/// Returns when all ranks have come.
void meet(Opening& opening, int ranks) {
    const int meeting = opening.meetings;
    if (++opening.arrived == ranks) {
        opening.arrived = 0;
        ++opening.meetings;
    }
    while (opening.meetings == meeting) std::this_thread::yield();
}

onebit_allreduce_config_t config_of(const Form& form, std::size_t count) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    config.algorithm = form.algorithm;
    return config;
}

std::vector<float> input_of(std::size_t count, int rank, int step) {
    return make_data(Kind::gaussian, count, 1, rank, static_cast<std::uint64_t>(step));
}

/// By step, the same on all ranks. A failure here ends the process.
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

/// Whether all results are right.
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

bool compare_all(const onebit::Communicator& communicator, cudaStream_t stream) {
    bool right = true;
    for (const Form& form : kForms) {
        // At least two nodes, with two ranks each.
        if (form.algorithm == ONEBIT_ALGORITHM_TWO_LEVEL && (communicator.size() < 4 || communicator.size() % 2 != 0))
            continue;
        for (const std::size_t count : kCounts) right = compare(communicator, stream, form, count) && right;
    }
    return right;
}

/// The time of a form's calls, from the moment all ranks begin one until all have ended it: the medians of rank 0.
nlohmann::ordered_json time_size(Opening& opening, const onebit::Communicator& communicator, cudaStream_t stream,
                                 std::size_t count) {
    constexpr int kWarmUp = 3;
    constexpr int kRounds = 21;
    using Clock = std::chrono::steady_clock;
    std::vector<float> values = input_of(std::size_t{1} << 16, communicator.rank(), 0);
    for (std::size_t i = values.size(); i < count; ++i) values.push_back(values[i - (std::size_t{1} << 16)]);
    values.resize(count);
    const onebit::DeviceArray<float> input(values);
    const onebit::DeviceArray<float> output(values);
    nlohmann::ordered_json rows;
    for (const auto& [form, checked] : {std::pair(kForms[0], true), {kForms[0], false}, {kForms[1], true}}) {
        onebit_allreduce_config_t config = config_of(form, count);
        config.memory = ONEBIT_MEMORY_CUDA;
        config.check = checked ? ONEBIT_CHECK_FULL : ONEBIT_CHECK_NONE;
        onebit::Allreduce handle(communicator, config);
        std::vector<double> times;
        for (int round = 0; round < kWarmUp + kRounds; ++round) {
            meet(opening, communicator.size());
            const Clock::time_point begin = Clock::now();
            handle.run(input.data(), output.data());
            if (cudaStreamSynchronize(stream) != cudaSuccess) throw std::runtime_error("cudaStreamSynchronize");
            meet(opening, communicator.size());
            const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
            if (round >= kWarmUp) times.push_back(time.count());
        }
        std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
        rows[form.name + std::string(checked ? "" : ", unchecked")] = {{"microseconds", times[kRounds / 2]}};
    }
    return {{"elements", count}, {"rounds", kRounds}, {"forms", rows}};
}

/// Rank 0 prints the times, and writes those measured so far after each size.
bool time_all(Opening& opening, const Options& options, const onebit::Communicator& communicator, cudaStream_t stream) {
    nlohmann::ordered_json report = {{"ranks", communicator.size()}, {"transport", "NCCL between processes"}};
    for (const std::size_t count : options.timed) {
        report["sizes"].push_back(time_size(opening, communicator, stream, count));
        if (communicator.rank() != 0) continue;
        for (const auto& [form, row] : report["sizes"].back()["forms"].items()) {
            std::printf("%-12zu %-20s %12.1f us\n", count, form.c_str(), row["microseconds"].get<double>());
        }
        if (options.json.empty()) continue;
        std::ofstream file(options.json);
        file << report.dump(1) << "\n";
        if (!file.flush()) throw std::runtime_error(options.json + ": can't be written");
    }
    return true;
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

int run_rank(Opening& opening, const Options& options, int rank, int ranks) {
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
        const bool done = options.timed.empty() ? compare_all(communicator, stream)
                                                : time_all(opening, options, communicator, stream);
        right = done && right;
    }
    right = onebit::nccl::check(*api, nullptr, api->comm_destroy(comm), "ncclCommDestroy").ok() && right;
    return right ? 0 : kFailed;
}

[[noreturn]] void be_rank(Opening& opening, const Options& options, int rank, int ranks) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // no rank outlives the test
    setenv("ONEBIT_NODE_SIZE", "2", 1);
    setenv("ONEBIT_TIMEOUT", std::to_string(kTimeout).c_str(), 1);
    setenv("NCCL_HOSTID", ("onebit-rank-" + std::to_string(rank)).c_str(), 1);
    // Settings of the user take precedence. The "hosts" are one machine, reached without a network.
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_MNNVL_ENABLE", "0", 0);
    setenv("NCCL_DEBUG", "WARN", 0);
    int code = kFailed;
    try {
        code = run_rank(opening, options, rank, ranks);
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

/// Removes the processes that have ended, and returns the worst exit status: any but 0 and "skipped" is "failed".
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

/// The worst exit status of the ranks, each a process. Only ranks initialise CUDA, because CUDA doesn't survive a fork.
int run_ranks(const Options& options, int ranks) {
    void* const shared = mmap(nullptr, sizeof(Opening), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return kFailed;
    Opening& opening = *new (shared) Opening;
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) be_rank(opening, options, rank, ranks);
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

/// False: it means nothing.
bool read_options(int argc, char** argv, Options* options) {
    std::string option;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--time" || word == "--json") {
            option = word;
        } else if (option == "--time") {
            options->ranks = {2};
            options->timed.push_back(std::strtoull(word.c_str(), nullptr, 10));
            if (options->timed.back() == 0) return false;
        } else if (option == "--json") {
            options->json = word;
        } else {
            options->ranks = {std::atoi(word.c_str())};
        }
    }
    return options->ranks.front() > 0 && (option.empty() || !options->timed.empty());
}

} // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // what was printed before a crash is in the log
    Options options;
    if (!read_options(argc, argv, &options)) {
        std::fprintf(stderr, "usage: onebit_nccl_processes [RANKS | --time ELEMENTS... [--json FILE]]\n");
        return kFailed;
    }
    bool failed = false;
    bool passed = false;
    for (const int ranks : options.ranks) {
        std::fflush(stdout); // or each rank inherits the rest of the buffer
        const int code = run_ranks(options, ranks);
        failed = failed || code == kFailed;
        passed = passed || code == 0;
        std::printf("%d ranks over NCCL: %s\n", ranks, code == 0 ? "passed" : code == kSkipped ? "skipped" : "FAILED");
    }
    return failed ? kFailed : passed ? 0 : kSkipped;
}
