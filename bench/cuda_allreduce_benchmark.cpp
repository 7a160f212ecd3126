// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How long an allreduce of a GPU's memory takes, whole, and how long it takes to tell a GPU's address from the host's:
//
//     cuda_allreduce_benchmark --ranks 2 --json allreduce.json
//
// The ranks are threads that share one GPU, a stream each; their messages pass through pinned memory. So it shows the
// cost of kernels, launches and copies, not of a network. A call is timed on the host, from when all ranks begin it to
// when all streams have come to its end. The forms' calls take turns; times are medians. Without a GPU: one line, and
// exit status 77.

#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <onebit/onebit.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/cuda/pointers.hpp"
#include "cuda_support.hpp"
#include "samples.hpp"

namespace onebit::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Form {
    onebit_algorithm_t algorithm;
    onebit_check_t check;
    const char* name;
};
constexpr std::array kForms = {Form{ONEBIT_ALGORITHM_DENSE, ONEBIT_CHECK_FULL, "dense"},
                               Form{ONEBIT_ALGORITHM_FLAT, ONEBIT_CHECK_FULL, "flat"},
                               Form{ONEBIT_ALGORITHM_FLAT, ONEBIT_CHECK_NONE, "flat, unchecked"},
                               Form{ONEBIT_ALGORITHM_PIPELINED, ONEBIT_CHECK_FULL, "pipelined"},
                               Form{ONEBIT_ALGORITHM_PIPELINED, ONEBIT_CHECK_NONE, "pipelined, unchecked"}};

class Stream {
  public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    cudaStream_t get() const { return stream_; }
    void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  private:
    cudaStream_t stream_ = nullptr;
};

// One rank's part: all forms in turn. `times`: by form; rank 0's.
void run_rank(const Communicator& communicator, std::size_t elements, int rounds, std::barrier<>& meeting,
              std::array<std::vector<double>, kForms.size()>* times) {
    constexpr int kWarmUp = 3;
    const Stream stream;
    std::vector<float> values(elements);
    std::mt19937 generator(static_cast<unsigned>(communicator.rank()));
    fill_with_gaussians(values.data(), elements, generator);
    const DeviceArray<float> input(values);
    const DeviceArray<float> output(elements);
    std::vector<Allreduce> handles;
    for (const Form& form : kForms) {
        onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(elements);
        config.algorithm = form.algorithm;
        config.check = form.check;
        config.memory = ONEBIT_MEMORY_CUDA;
        config.stream = stream.get();
        handles.emplace_back(communicator, config);
    }
    for (int round = 0; round < kWarmUp + rounds; ++round) {
        for (std::size_t f = 0; f < kForms.size(); ++f) {
            meeting.arrive_and_wait();
            const Clock::time_point begin = Clock::now();
            handles[f].run(input.data(), output.data());
            stream.wait();
            meeting.arrive_and_wait();
            if (communicator.rank() == 0 && round >= kWarmUp) (*times)[f].push_back(microseconds_since(begin));
        }
    }
}

// All forms at one size; prints a table and returns the same.
nlohmann::ordered_json measure_size(int ranks, std::size_t elements, int rounds) {
    const std::vector<Communicator> communicators = Communicator::loopback(ranks);
    std::array<std::vector<double>, kForms.size()> times;
    std::barrier<> meeting(ranks);
    std::vector<std::thread> threads;
    for (const Communicator& communicator : communicators) {
        threads.emplace_back([&] {
            try {
                run_rank(communicator, elements, rounds, meeting, &times);
            } catch (const std::exception& error) { // the other ranks would wait for ever
                std::fprintf(stderr, "cuda_allreduce_benchmark: %s\n", error.what());
                std::_Exit(EXIT_FAILURE);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    nlohmann::ordered_json rows;
    const double dense = median(times[0]);
    for (std::size_t f = 0; f < kForms.size(); ++f) {
        const double time = median(times[f]);
        const double rate = static_cast<double>(elements * sizeof(float)) / time / 1e3;
        std::printf("%-12zu %-20s %12.1f %12.1f %10.2f\n", elements, kForms[f].name, time, rate, dense / time);
        rows[kForms[f].name] = {{"microseconds", time}, {"gigabytes_per_second", rate}, {"of_dense", dense / time}};
    }
    return {{"elements", elements}, {"rounds", rounds}, {"forms", rows}};
}

// Nanoseconds of one look-up of an address that was looked up before.
template <typename Look>
double nanoseconds_of(const Look& look) {
    constexpr int kLooks = 10000;
    std::vector<double> times;
    for (int round = 0; round < 21; ++round) {
        const Clock::time_point begin = Clock::now();
        for (int i = 0; i < kLooks; ++i) look();
        times.push_back(1e3 * microseconds_since(begin) / kLooks);
    }
    return median(times);
}

nlohmann::ordered_json measure_pointers() {
    const DeviceArray<float> on_device(1U << 20U);
    const std::vector<float> on_host(1024);
    cuda::Pointers pointers;
    const auto known = [&](const void* address) {
        return nanoseconds_of([&] {
            cuda::Place place;
            check(pointers.find(address, &place));
        });
    };
    nlohmann::ordered_json times = {{"device", known(on_device.data() + 1000)}, {"host", known(on_host.data())}};
    times["host, to a handle of the host's memory"] = nanoseconds_of([&] {
        if (cuda::is_on_device(on_host.data())) std::abort();
    });
    times["cudaPointerGetAttributes"] = nanoseconds_of([&] {
        cudaPointerAttributes attributes{};
        check(cudaPointerGetAttributes(&attributes, on_device.data() + 1000), "cudaPointerGetAttributes");
    });
    for (const auto& [what, time] : times.items()) {
        std::printf("where an address lies: %-28s %8.1f ns\n", what.c_str(), time.get<double>());
    }
    return times;
}

} // namespace
} // namespace onebit::bench

int main(int argc, char** argv) {
    using namespace onebit::bench;
    CudaOptions options{{std::size_t{1} << 18, std::size_t{1} << 22, std::size_t{1} << 26}};
    int ranks = 2;
    CLI::App app("Measures allreduces of a GPU's memory, between ranks that share it.", "cuda_allreduce_benchmark");
    app.add_option("--ranks", ranks, "Ranks, one thread each")->check(CLI::Range(1, 64))->capture_default_str();
    add_options(app, options);
    return run_benchmark(app, argc, argv, options, [&](nlohmann::ordered_json& report) {
        report["ranks"] = ranks;
        report["pointer_nanoseconds"] = measure_pointers();
        write_report(report, options.json);
        std::printf("%-12s %-20s %12s %12s %10s\n", "# elements", "form", "median us", "GB/s", "of dense");
        for (const std::size_t elements : options.elements) {
            report["sizes"].push_back(measure_size(ranks, elements, options.rounds));
            write_report(report, options.json);
        }
    });
}
