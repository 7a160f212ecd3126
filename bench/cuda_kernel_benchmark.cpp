// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How fast the sign codec's kernels are on a GPU, and how close to what its memory allows:
//
//     cuda_kernel_benchmark --json kernels.json
//
// The rival is a copy from device to device, in turn with the kernels: of_copy = a kernel's bytes per second over the
// copy's, which reads and writes 4 bytes per element. Times are of events around each launch, medians. The arrays are
// to be several times the L2 cache; with smaller ones the ratios mean little. Without a GPU: one line, and exit
// status 77.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compress/sign/cuda/kernels.hpp"
#include "core/partition.hpp"
#include "cuda_support.hpp"
#include "samples.hpp"

namespace onebit::bench {
namespace {

constexpr std::size_t kRanks = 8; // whose messages the server's kernel averages
class Event {
  public:
    Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record() { check(cudaEventRecord(event_, nullptr), "cudaEventRecord"); }
    double microseconds_since(const Event& begin) const {
        check(cudaEventSynchronize(event_), "a kernel");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
        return 1e3 * static_cast<double>(milliseconds);
    }

  private:
    cudaEvent_t event_ = nullptr;
};

std::vector<float> gaussians(std::size_t count) {
    std::mt19937 generator(20260000U);
    std::vector<float> values(count);
    fill_with_gaussians(values.data(), count, generator);
    return values;
}

struct Case {
    std::string name;
    double bytes_per_element; // read and written
    std::function<void()> launch;
    std::vector<double> microseconds{};
};

// One chunk, and all that the kernels read and write of it.
class Arena {
  public:
    explicit Arena(std::size_t elements)
        : chunk_{0, 0, elements},
          words_(elements / kWordElements + chunk_.blocks()),
          values_(gaussians(elements)),
          corrected_(elements),
          output_(elements),
          scales_(chunk_.blocks()),
          sums_(chunk_.blocks()),
          message_(words_),
          incoming_(kRanks * words_),
          incoming_pointers_(pointers()),
          first_(1) {}

    std::vector<Case> cases() {
        constexpr double kScale = 4.0 / kBlockElements; // bytes of a block's scale, per element
        const cuda::Encoding to = {Slice::whole(chunk_), ONEBIT_SCALE_L2, ONEBIT_GROUP_BLOCK, error(), message_.data()};
        std::vector<Case> cases;
        cases.push_back({"copy", 8, [this] {
                             check(cudaMemcpyAsync(output_.data(), values_.data(), chunk_.count * sizeof(float),
                                                   cudaMemcpyDeviceToDevice, nullptr),
                                   "cudaMemcpyAsync");
                         }});
        cases.push_back({"encode", 12 + 0.125 + 3 * kScale, [this, to] {
                             check(cuda::encode({to, values_.data()}, nullptr));
                         }});
        cases.push_back(
            {"blend_encode", 12 + 0.25 + 4 * kScale, [this, to] {
                 check(cuda::blend_encode({to, values_.data(), {0.9F, 0.1F, 1.0F}, message_.data()}, nullptr));
             }});
        cases.push_back(
            {"average_encode", 8 + 0.125 * (kRanks + 1) + (kRanks + 3) * kScale, [this, to] {
                 check(cuda::average_encode({to, incoming_pointers_.data(), kRanks, 1.0F / kRanks}, nullptr));
             }});
        cases.push_back(
            {"decode", 4 + 0.125 + kScale, [this] {
                 check(cuda::decode(
                     {Slice::whole(chunk_), ONEBIT_GROUP_BLOCK, message_.data(), nullptr, output_.data()}, nullptr));
             }});
        cases.push_back({"first_nonfinite", 4, [this] {
                             check(cuda::first_nonfinite({values_.data(), chunk_.count, first_.data()}, nullptr));
                         }});
        return cases;
    }

  private:
    cuda::ErrorBuffers error() const {
        return {corrected_.data(), scales_.data(), corrected_.data(), scales_.data(), sums_.data(), nullptr, nullptr};
    }
    std::vector<const std::uint32_t*> pointers() const {
        std::vector<const std::uint32_t*> all;
        for (std::size_t r = 0; r < kRanks; ++r) all.push_back(incoming_.data() + r * words_);
        return all;
    }

    Chunk chunk_;
    std::size_t words_;
    DeviceArray<float> values_;
    DeviceArray<float> corrected_;
    DeviceArray<float> output_;
    DeviceArray<float> scales_;
    DeviceArray<double> sums_;
    DeviceArray<std::uint32_t> message_;
    DeviceArray<std::uint32_t> incoming_;
    DeviceArray<const std::uint32_t*> incoming_pointers_;
    DeviceArray<unsigned long long> first_;
};

// All cases in turn, `rounds` times; prints a table and returns the same as JSON.
nlohmann::ordered_json measure(std::size_t elements, int rounds) {
    constexpr int kWarmUp = 3;
    Arena arena(elements);
    std::vector<Case> cases = arena.cases();
    Event begin;
    Event end;
    for (int round = 0; round < kWarmUp + rounds; ++round) {
        for (Case& one : cases) {
            begin.record();
            one.launch();
            end.record();
            const double time = end.microseconds_since(begin);
            if (round >= kWarmUp) one.microseconds.push_back(time);
        }
    }
    nlohmann::ordered_json rows;
    double copy = 0; // bytes per microsecond
    for (const Case& one : cases) {
        const double time = median(one.microseconds);
        const double rate = one.bytes_per_element * static_cast<double>(elements) / time;
        if (copy == 0) copy = rate;
        std::printf("%-12zu %-16s %12.1f %12.1f %10.3f\n", elements, one.name.c_str(), time, rate / 1e3, rate / copy);
        rows[one.name] = {{"microseconds", time}, {"gigabytes_per_second", rate / 1e3}, {"of_copy", rate / copy}};
    }
    return {{"elements", elements}, {"rounds", rounds}, {"cases", rows}};
}

struct Options {
    std::vector<std::size_t> elements = {std::size_t{1} << 20, std::size_t{1} << 24, std::size_t{1} << 26,
                                         std::size_t{1} << 28};
    int rounds = 21;
    std::string json;
};

int run(const Options& options) {
    const std::optional<nlohmann::ordered_json> device = describe_device();
    if (!device) return kNoDevice;
    std::printf("%-12s %-16s %12s %12s %10s\n", "# elements", "kernel", "median us", "GB/s", "of copy");
    nlohmann::ordered_json report = *device;
    report["ranks"] = kRanks;
    for (const std::size_t elements : options.elements) report["sizes"].push_back(measure(elements, options.rounds));
    write_report(report, options.json);
    return EXIT_SUCCESS;
}

} // namespace
} // namespace onebit::bench

int main(int argc, char** argv) {
    onebit::bench::Options options;
    CLI::App app("Measures the sign codec's CUDA kernels beside a copy from device to device.");
    app.add_option("--elements", options.elements, "Sizes, multiples of 4096 [2^20 2^24 2^26 2^28]")
        ->check([](const std::string& text) {
            const unsigned long long count = std::strtoull(text.c_str(), nullptr, 10);
            return count > 0 && count % onebit::kBlockElements == 0 ? "" : text + " is no multiple of 4096";
        });
    app.add_option("--rounds", options.rounds, "Launches of each kernel at each size")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--json", options.json, "File for the table as JSON");
    CLI11_PARSE(app, argc, argv);
    try {
        return onebit::bench::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "cuda_kernel_benchmark: %s\n", error.what());
    }
    return EXIT_FAILURE;
}
