// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// A collective that a benchmark measures: onebit's, and MPI's to compare with.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "osu_options.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// A part of the whole buffer, in elements.
struct Part {
    std::size_t begin = 0;
    std::size_t count = 0;

    // If i lies before the part, i - begin wraps round: then it is no index of the part, either.
    bool has(std::size_t i) const { return i - begin < count; }
};

// Which elements a call of this rank reads and writes.
struct Shape {
    std::size_t count = 0; // of the whole buffer
    Part input;
    Part output;
    int divisor = 1;           // of the results of MPI's call: if MPI's call sums, onebit averages
    bool rounded_once = false; // each element of a result: it differs from the exact one only by the inputs' errors
};

// What onebit says about a handle.
struct OperationInfo {
    OperationInfo() = default;
    template <class Info> // onebit_allreduce_info_t, onebit_shard_info_t
    explicit OperationInfo(const Info& info)
        : algorithm(info.algorithm),
          threads(info.threads),
          last_bytes_sent(info.last_bytes_sent),
          transport(info.transport),
          kernels(info.kernels),
          reason(info.reason) {}

    onebit_algorithm_t algorithm = ONEBIT_ALGORITHM_AUTO;
    std::uint32_t threads = 0;
    std::uint64_t last_bytes_sent = 0;
    std::string transport;
    std::string kernels;
    std::string reason;
};

// The error state of a handle.
struct Errors {
    FloatBuffer worker; // of the elements of Shape::input
    FloatBuffer server; // of the elements of `served`
    Part served;
};

// The values that are sent, and room for results, on the host.
struct HostBuffers {
    HostBuffers(const Ranks& ranks, onebit_comm_t comm, bool shared, std::size_t count)
        : send(shared ? FloatBuffer(ranks, comm, count) : FloatBuffer(count)),
          receive(shared ? FloatBuffer(ranks, comm, count) : FloatBuffer(count)) {
        std::mt19937_64 generator(20260000U + static_cast<unsigned>(ranks.rank));
        std::normal_distribution<float> gaussian;
        for (std::size_t i = 0; i < count; ++i) send[i] = gaussian(generator);
    }

    FloatBuffer send;
    FloatBuffer receive;
};

// One size's handle of onebit's, made with the benchmark's options, and MPI's call. All calls except the const ones are
// collective.
class Operation {
  public:
    Operation() = default;
    virtual ~Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // The calls that are timed, of HostBuffers::send.
    virtual void run() = 0;
    virtual void run_rival() = 0;
    virtual void run_bfloat16() {} // with --bf16

    // The same calls in parts, where the program computes between them. A call makes progress in test() and wait().
    virtual void start() {}
    virtual void test() {}
    virtual void wait() {}
    virtual void start_rival() {}
    virtual void test_rival() {}
    virtual void wait_rival() {}

    // One call with other values, from and to the host's memory.
    virtual void run_of(const float* input, float* output) = 0;
    virtual void run_rival_of(const float* input, float* output) = 0;

    // Whether results that are no averages are as they should be. Averages have validate().
    virtual bool is_valid() { return true; }

    virtual void reset() = 0;
    virtual OperationInfo info() const = 0;
    virtual Errors errors() const = 0;
    virtual Shape shape() const = 0;

    // The rest of the line of settings, from its comma on.
    virtual std::string settings() const { return ""; }
};

} // namespace onebit::bench
