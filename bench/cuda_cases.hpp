// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Launches on a GPU, in turn with a copy from device to device: what the benchmarks of kernels and of passes print.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cuda_support.hpp"
#include "samples.hpp"

namespace onebit::bench {

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

// The same 16 MiB again and again: drawing a whole large array would take longer than the measurement.
inline std::vector<float> gaussians(std::size_t count) {
    constexpr std::size_t kDrawn = std::size_t{1} << 22;
    std::mt19937 generator(20260000U);
    std::vector<float> values(count);
    fill_with_gaussians(values.data(), std::min(count, kDrawn), generator);
    for (std::size_t i = kDrawn; i < count; ++i) values[i] = values[i - kDrawn];
    return values;
}

struct Case {
    std::string name;
    double bytes_per_element; // read and written
    std::function<void()> launch;
    std::vector<double> microseconds{};
};

// The rival of all other cases.
inline Case copy_case(const float* from, float* to, std::size_t elements) {
    return {"copy", 8, [=] {
                check(cudaMemcpyAsync(to, from, elements * sizeof(float), cudaMemcpyDeviceToDevice, nullptr),
                      "cudaMemcpyAsync");
            }};
}

inline void print_cases_header() {
    std::printf("%-12s %-34s %12s %12s %10s\n", "# elements", "case", "median us", "GB/s", "of copy");
}

// All cases in turn, the copy first, `rounds` times; prints their rows and returns the same as JSON.
inline nlohmann::ordered_json measure_cases(std::vector<Case>& cases, std::size_t elements, int rounds) {
    using Clock = std::chrono::steady_clock;
    constexpr int kWarmUp = 3;
    const Clock::time_point warm = Clock::now() + std::chrono::milliseconds(200); // an idle GPU's clocks are low
    Event begin;
    Event end;
    const auto run_all = [&](bool counts) {
        for (Case& one : cases) {
            begin.record();
            one.launch();
            end.record();
            const double time = end.microseconds_since(begin);
            if (counts) one.microseconds.push_back(time);
        }
    };
    for (int round = 0; round < kWarmUp || Clock::now() < warm; ++round) run_all(false);
    for (int round = 0; round < rounds; ++round) run_all(true);
    nlohmann::ordered_json rows;
    double copy = 0; // bytes per microsecond
    for (const Case& one : cases) {
        const double time = median(one.microseconds);
        const double rate = one.bytes_per_element * static_cast<double>(elements) / time;
        if (copy == 0) copy = rate;
        std::printf("%-12zu %-34s %12.1f %12.1f %10.3f\n", elements, one.name.c_str(), time, rate / 1e3, rate / copy);
        rows[one.name] = {{"microseconds", time}, {"gigabytes_per_second", rate / 1e3}, {"of_copy", rate / copy}};
    }
    return {{"elements", elements}, {"rounds", rounds}, {"cases", rows}};
}

} // namespace onebit::bench
