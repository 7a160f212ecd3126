// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// What the OSU-style benchmarks have in common: the whole program except the collective.
//
// With --full each iteration also times MPI's dense float32 call of the same size. The two calls take turns. The first
// call changes from iteration to iteration, so that the machine's other work affects both alike. If the dense call
// sums, onebit averages: the division is not charged to the dense call.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <memory>
#include <string>

#include "osu_operation.hpp"
#include "osu_options.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// What the operations of all sizes share: ranks and settings, and memory for the largest of them.
class Collective {
  public:
    Collective() = default;
    virtual ~Collective() = default;
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;

    // The operation on a whole buffer of `count` elements. Collective.
    virtual std::unique_ptr<Operation> create(std::size_t count) = 0;
    // The values that every operation sends, in the host's memory.
    virtual const float* values() const = 0;
};

// The part that differs between benchmarks.
class OsuBenchmark {
  public:
    explicit OsuBenchmark(const OsuProgram& program) : program_(program) {}
    virtual ~OsuBenchmark() = default;
    OsuBenchmark(const OsuBenchmark&) = delete;
    OsuBenchmark& operator=(const OsuBenchmark&) = delete;

    const OsuProgram& program() const { return program_; }
    // Why this rank can't do what the options ask for; "" if it can.
    virtual std::string missing(const OsuOptions&) const { return ""; }
    // Collective. `ranks` and `options` outlive the returned object.
    virtual std::unique_ptr<Collective> prepare(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options,
                                                std::size_t largest) const = 0;

  private:
    OsuProgram program_;
};

// The whole program, from MPI_Init_thread on. Returns its exit status.
int run_benchmark(int argc, char** argv, const OsuBenchmark& benchmark);

} // namespace onebit::bench
