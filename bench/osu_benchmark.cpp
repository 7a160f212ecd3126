// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_benchmark.hpp"

#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

#include "osu_overlap.hpp"
#include "osu_report.hpp"
#include "osu_validation.hpp"

namespace onebit::bench {

namespace {

// The time of each timed call on this rank, in microseconds.
struct Times {
    std::vector<double> compressed;
    std::vector<double> dense;    // empty without --full
    std::vector<double> bfloat16; // empty without --bf16
};

template <class Call>
double time_us(const Ranks& ranks, Call&& call) {
    MPI_Barrier(ranks.comm);
    const double begin = MPI_Wtime();
    call();
    return (MPI_Wtime() - begin) * 1e6;
}

Times measure(const Ranks& ranks, const OsuOptions& options, Operation& operation, std::size_t bytes) {
    const std::size_t warmup = warmup_for(options, bytes);
    const std::size_t iterations = iterations_for(options, bytes);
    const auto compressed = [&] { operation.run(); };
    const auto dense = [&] { operation.run_rival(); };
    const bool bfloat16 = options.full && options.bfloat16;
    Times times;
    times.compressed.reserve(iterations);
    if (options.full) times.dense.reserve(iterations);
    for (std::size_t i = 0; i < warmup + iterations; ++i) {
        const bool dense_first = options.full && i % 2 == 1;
        double dense_us = dense_first ? time_us(ranks, dense) : 0.0;
        const double compressed_us = time_us(ranks, compressed);
        if (options.full && !dense_first) dense_us = time_us(ranks, dense);
        const double bfloat16_us = bfloat16 ? time_us(ranks, [&] { operation.run_bfloat16(); }) : 0.0;
        if (i < warmup) continue;
        times.compressed.push_back(compressed_us);
        if (options.full) times.dense.push_back(dense_us);
        if (bfloat16) times.bfloat16.push_back(bfloat16_us);
    }
    return times;
}

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double reduce(const Ranks& ranks, double value, MPI_Op operation) {
    double result = 0;
    MPI_Reduce(&value, &result, 1, MPI_DOUBLE, operation, 0, ranks.comm);
    return result;
}

// The median of the slowest rank's time in each iteration: a collective takes as long as its last rank. On rank 0.
double median_of_slowest(const Ranks& ranks, const std::vector<double>& times) {
    std::vector<double> slowest(times.size());
    MPI_Reduce(times.data(), slowest.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX, 0, ranks.comm);
    std::sort(slowest.begin(), slowest.end());
    const std::size_t half = slowest.size() / 2;
    return slowest.size() % 2 == 1 ? slowest[half] : (slowest[half - 1] + slowest[half]) / 2;
}

// Fills in the results of the times; complete on rank 0.
void summarize(const Ranks& ranks, const Times& times, OsuRow& row) {
    const double average = mean(times.compressed);
    row.iterations = times.compressed.size();
    row.average_us = reduce(ranks, average, MPI_SUM) / ranks.size;
    row.minimum_us = reduce(ranks, average, MPI_MIN);
    row.maximum_us = reduce(ranks, average, MPI_MAX);
    if (times.dense.empty()) return;
    row.dense_us = reduce(ranks, mean(times.dense), MPI_SUM) / ranks.size;
    row.median_us = median_of_slowest(ranks, times.compressed);
    row.dense_median_us = median_of_slowest(ranks, times.dense);
    // As in nccl-tests: the part of the whole buffer that each rank has to send or to get, divided by the time.
    row.bus_bandwidth = static_cast<double>(row.bytes) * (ranks.size - 1) / ranks.size / row.median_us / 1e3;
    if (!times.bfloat16.empty()) row.bfloat16_median_us = median_of_slowest(ranks, times.bfloat16);
}

// How far one call that starts with a zero error state is from the exact result: |onebit - exact|_2 / |exact|_2, of all
// ranks' results together.
double relative_error(const Ranks& ranks, Operation& operation, const float* values) {
    const Shape shape = operation.shape();
    FloatBuffer result(shape.output.count);
    FloatBuffer dense(shape.output.count);
    operation.reset();
    operation.run_of(values, result.data());
    operation.run_rival_of(values, dense.data());
    double sums[2] = {0, 0}; // of the squares of differences and of the exact values
    for (std::size_t i = 0; i < shape.output.count; ++i) {
        const double exact = static_cast<double>(dense[i]) / shape.divisor;
        const double difference = static_cast<double>(result[i]) - exact;
        sums[0] += difference * difference;
        sums[1] += exact * exact;
    }
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, ranks.comm);
    return std::sqrt(sums[0] / sums[1]);
}

std::string describe_settings(const Ranks& ranks, const OsuProgram& program, const OsuOptions& options,
                              const Operation& operation) {
    const OperationInfo info = operation.info();
    std::ostringstream text;
    text << "Ranks: " << ranks.size;
    if (program.steps) {
        text << operation.settings();
        return text.str();
    }
    text << ", kernels: " << info.kernels << ", threads: " << info.threads
         << ", datatype: " << kDatatypeNames[options.datatype] << ", codec: " << kCodecNames[options.codec]
         << ", scale: " << (options.scale == ONEBIT_SCALE_L1 ? "l1" : "l2")
         << ", group: " << (options.group == ONEBIT_GROUP_BLOCK ? "block" : "buffer")
         << ", check: " << kCheckNames[options.check];
    if (options.shared) text << ", buffers: onebit_mem_alloc";
    text << operation.settings();
    return text.str();
}

// One size: plan, time, check, print. True if valid.
bool benchmark_size(const Ranks& ranks, const OsuProgram& program, const OsuOptions& options, const OsuReport& report,
                    Collective& collective, std::size_t bytes, std::string& last_plan) {
    const std::unique_ptr<Operation> operation = collective.create(bytes / element_bytes(options));
    OsuRow row;
    row.bytes = bytes;
    summarize(ranks, measure(ranks, options, *operation, bytes), row);
    if (program.completion == Completion::kOverlapped) measure_overlap(ranks, options, *operation, row);
    if (options.full) {
        const OperationInfo info = operation->info();
        if (last_plan.empty()) report.comment(describe_settings(ranks, program, options, *operation));
        // The choice depends on the size, and a speedup near 1 has another meaning if nothing was compressed.
        const std::string plan = std::string(kAlgorithmNames[info.algorithm]) + " over " + info.transport;
        if (plan != last_plan) {
            report.comment("From " + std::to_string(bytes) + " bytes: " + plan + " (" + info.reason + ")");
        }
        last_plan = plan;
        row.wire_bytes = info.last_bytes_sent;
        if (!program.steps) row.relative_error = relative_error(ranks, *operation, collective.values());
    }
    if (options.validation) {
        row.valid =
            program.steps ? operation->is_valid() : validate(ranks, *operation, options.codec, collective.values());
    }
    report.row(row);
    return row.valid;
}

// MIN, 2 MIN, 4 MIN, ... up to MAX; if ranks have shards, less the rest that shards can't share equally. One comment
// names the sizes that onebit cannot do.
std::vector<std::size_t> message_sizes(const Ranks& ranks, const OsuProgram& program, const OsuOptions& options,
                                       const OsuReport& report) {
    const std::size_t element = element_bytes(options);
    const std::size_t smallest = static_cast<std::size_t>(ranks.size) * element;
    const std::size_t unit = program.shards ? smallest : element;
    std::vector<std::size_t> sizes;
    std::size_t last_skipped = 0;
    for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
        const std::size_t rounded = program.shards ? bytes / unit * unit : bytes;
        if (rounded % unit == 0 && rounded >= smallest) {
            sizes.push_back(rounded);
        } else {
            last_skipped = bytes;
        }
    }
    if (last_skipped != 0) {
        std::string range = std::to_string(options.min_bytes);
        if (last_skipped != options.min_bytes) range += " to " + std::to_string(last_skipped);
        report.comment("Skipped: " + range + " bytes (onebit needs whole " + kDatatypeNames[options.datatype] +
                       " elements, at least one for each of " + std::to_string(ranks.size) + " ranks)");
    }
    return sizes;
}

// Whether all ranks can do what the options ask for. If not, the first rank that can't says why.
bool all_can(const Ranks& ranks, const OsuBenchmark& benchmark, const OsuOptions& options) {
    const std::string missing = benchmark.missing(options);
    const int without = missing.empty() ? ranks.size : ranks.rank;
    int first = 0;
    MPI_Allreduce(&without, &first, 1, MPI_INT, MPI_MIN, ranks.comm);
    if (first == ranks.rank) {
        std::fprintf(stderr, "%s: rank %d: %s\n", ranks.program, ranks.rank, missing.c_str());
    }
    return first == ranks.size;
}

int gather_by_mpi(void* context, const void* mine, void* all, std::size_t bytes) {
    const int count = static_cast<int>(bytes);
    return MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, static_cast<const Ranks*>(context)->comm);
}

onebit_comm_t create_comm(const Ranks& ranks, const OsuOptions& options) {
    onebit_comm_t comm = nullptr;
    if (options.tcp) {
        Ranks context = ranks;
        const onebit_bootstrap_t bootstrap = ONEBIT_BOOTSTRAP_INIT(ranks.rank, ranks.size, gather_by_mpi, &context);
        require_success(ranks, onebit_comm_create_bootstrap(&bootstrap, &comm), "onebit_comm_create_bootstrap");
    } else {
        require_success(ranks, onebit_comm_create_mpi(ranks.comm, &comm), "onebit_comm_create_mpi");
    }
    return comm;
}

// True if all sizes were measured and valid.
bool measure_all(const Ranks& ranks, const OsuBenchmark& benchmark, const OsuOptions& options) {
    if (!all_can(ranks, benchmark, options)) return false;
    const OsuReport report(ranks.rank == 0, benchmark.program(), options);
    report.header();
    const onebit_comm_t comm = create_comm(ranks, options);
    const std::vector<std::size_t> sizes = message_sizes(ranks, benchmark.program(), options, report);
    bool valid = true;
    if (!sizes.empty()) {
        const auto collective = benchmark.prepare(ranks, comm, options, sizes.back() / element_bytes(options));
        std::string last_plan;
        for (const std::size_t bytes : sizes) {
            valid = benchmark_size(ranks, benchmark.program(), options, report, *collective, bytes, last_plan) && valid;
        }
    }
    require_success(ranks, onebit_comm_destroy(comm), "onebit_comm_destroy");
    return valid;
}

} // namespace

int run_benchmark(int argc, char** argv, const OsuBenchmark& benchmark) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    const OsuProgram& program = benchmark.program();
    Ranks ranks;
    ranks.program = program.name;
    MPI_Comm_rank(ranks.comm, &ranks.rank);
    MPI_Comm_size(ranks.comm, &ranks.size);
    try {
        OsuOptions options;
        std::ostringstream unheard;
        const bool talks = ranks.rank == 0;
        std::optional<int> exit_status =
            parse_options(argc, argv, program, options, talks ? std::cout : unheard, talks ? std::cerr : unheard);
        if (!exit_status) exit_status = measure_all(ranks, benchmark, options) ? EXIT_SUCCESS : EXIT_FAILURE;
        std::cout.flush();
        MPI_Finalize();
        return *exit_status;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: rank %d: %s\n", program.name, ranks.rank, error.what());
        MPI_Abort(ranks.comm, EXIT_FAILURE);
    }
    return EXIT_FAILURE;
}

} // namespace onebit::bench
