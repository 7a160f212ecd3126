// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_overlap.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>

namespace onebit::bench {

namespace {

// Something to compute in the registers of one core: it takes no memory bandwidth from the calls.
class Work {
  public:
    // Measures how long a unit takes, while all ranks measure it. Collective.
    explicit Work(const Ranks& ranks) {
        constexpr std::size_t kUnits = 1000000;
        MPI_Barrier(ranks.comm);
        const double begin = MPI_Wtime();
        compute(kUnits);
        units_per_us_ = kUnits / ((MPI_Wtime() - begin) * 1e6);
    }

    std::size_t units_of(double us) const { return static_cast<std::size_t>(us * units_per_us_); }

    void compute(std::size_t units) {
        double value = value_;
        for (std::size_t i = 0; i < units; ++i) value = value * 0.999999 + 1e-6;
        value_ = value;
    }

  private:
    volatile double value_ = 0.5;
    double units_per_us_ = 1;
};

// onebit's call, or the rival's.
struct Call {
    void (Operation::*start)();
    void (Operation::*test)();
    void (Operation::*wait)();
};
constexpr Call kOwn = {&Operation::start, &Operation::test, &Operation::wait};
constexpr Call kRival = {&Operation::start_rival, &Operation::test_rival, &Operation::wait_rival};

double mean_of_ranks(const Ranks& ranks, double value) {
    double sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, ranks.comm);
    return sum / ranks.size;
}

Overlap measure(const Ranks& ranks, const OsuOptions& options, Operation& operation, std::size_t bytes, Work& work,
                const Call& call, double call_us) {
    const std::size_t warmup = warmup_for(options, bytes);
    const std::size_t iterations = iterations_for(options, bytes);
    const std::size_t units = work.units_of(call_us) / (options.tests + 1); // between two tests
    double overall = 0;
    double alone = 0;
    for (std::size_t i = 0; i < warmup + iterations; ++i) {
        MPI_Barrier(ranks.comm);
        const double begin = MPI_Wtime();
        (operation.*call.start)();
        for (std::size_t test = 0; test < options.tests; ++test) {
            work.compute(units);
            (operation.*call.test)();
        }
        work.compute(units);
        (operation.*call.wait)();
        const double end = MPI_Wtime();
        MPI_Barrier(ranks.comm);
        const double begin_alone = MPI_Wtime();
        for (std::size_t part = 0; part <= options.tests; ++part) work.compute(units);
        if (i < warmup) continue;
        overall += end - begin;
        alone += MPI_Wtime() - begin_alone;
    }
    const double scale = 1e6 / static_cast<double>(iterations);
    return {mean_of_ranks(ranks, overall * scale), mean_of_ranks(ranks, alone * scale)};
}

} // namespace

void measure_overlap(const Ranks& ranks, const OsuOptions& options, Operation& operation, OsuRow& row) {
    double calls[2] = {row.average_us, row.dense_us}; // known on rank 0
    MPI_Bcast(calls, 2, MPI_DOUBLE, 0, ranks.comm);
    Work work(ranks);
    row.overlap = measure(ranks, options, operation, row.bytes, work, kOwn, calls[0]);
    if (options.full) row.dense_overlap = measure(ranks, options, operation, row.bytes, work, kRival, calls[1]);
}

} // namespace onebit::bench
