// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the GPU's benchmarks share.
#pragma once

#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace onebit::bench {

constexpr int kNoDevice = 77; // exit status

inline void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

inline void check(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
}

// Device memory, zeroed.
template <typename T>
class DeviceArray {
  public:
    explicit DeviceArray(std::size_t count) : count_(count) {
        check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
        check(cudaMemset(data_, 0, count * sizeof(T)), "cudaMemset");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); // for streams that don't wait for the default one
    }
    explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
        check(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    T* data() const { return data_; }

  private:
    std::size_t count_;
    T* data_ = nullptr;
};

// Prints one line on the GPU that is used, and returns the same; nothing, if there is no GPU.
inline std::optional<nlohmann::ordered_json> describe_device() {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
        std::printf("skipped: no CUDA device: %s\n",
                    cudaGetErrorString(error != cudaSuccess ? error : cudaErrorNoDevice));
        return std::nullopt;
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    std::printf("# %s, %d multiprocessors, L2 %d MiB, driver for CUDA %d, runtime %d\n", properties.name,
                properties.multiProcessorCount, properties.l2CacheSize >> 20, driver, CUDART_VERSION);
    return nlohmann::ordered_json{{"gpu", properties.name},
                                  {"l2_bytes", properties.l2CacheSize},
                                  {"driver", driver},
                                  {"runtime", CUDART_VERSION}};
}

struct CudaOptions {
    std::vector<std::size_t> elements;
    int rounds = 21;
    std::string json{};
};

// The options of all these benchmarks. `options.elements` has the default sizes.
inline void add_options(CLI::App& app, CudaOptions& options) {
    std::string sizes;
    for (const std::size_t elements : options.elements) sizes += " " + std::to_string(elements);
    app.add_option("--elements", options.elements, "Sizes, at least 4096 [" + sizes.substr(1) + "]")
        ->check(CLI::Range(std::size_t{4096}, std::size_t{1} << 36));
    app.add_option("--rounds", options.rounds, "Measurements of each at each size")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--json", options.json, "File for the table as JSON");
}

// To a file; "": nowhere.
inline void write_report(const nlohmann::ordered_json& report, const std::string& name) {
    if (name.empty()) return;
    std::ofstream file(name);
    file << report.dump(1) << "\n";
    if (!file.flush()) throw std::runtime_error(name + ": can't be written");
}

// A benchmark's main(): reads the command line, names the GPU, lets measure(report) print its table and add it to the
// report, and writes the report, also if measure() fails. As the program may be killed, measure() writes the report
// after each size, too. Returns the exit status.
template <typename Measure>
int run_benchmark(CLI::App& app, int argc, char** argv, const CudaOptions& options, const Measure& measure) {
    CLI11_PARSE(app, argc, argv);
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); // what was printed before a crash is in the log
    const auto succeeds = [&](const auto& part) {
        try {
            part();
            return true;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.what());
        }
        return false;
    };
    std::optional<nlohmann::ordered_json> report;
    const bool measured = succeeds([&] {
        report = describe_device();
        if (report) measure(*report);
    });
    if (measured && !report) return kNoDevice;
    const bool written = !report || succeeds([&] { write_report(*report, options.json); });
    return measured && written ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace onebit::bench
