// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Latency of onebit_allreduce_run for a range of message sizes, measured and printed as the OSU micro-benchmarks
// measure and print MPI_Allreduce, so that what people know how to read, plot and parse stays the same:
//
//     mpirun -n 4 osu_onebit_allreduce -m 4:64M -f -c
//
// With --full each iteration also times a dense float32 MPI_Allreduce of the same size. The two take turns, and the one
// that goes first changes from iteration to iteration, so that whatever else the machine does hits both alike. The
// dense call sums where onebit averages: the division is not charged to it.
//
// With --accelerator cuda, OMB's option, values lie in GPUs' memory, and a call ends when its stream has come to its
// end. The dense MPI_Allreduce is of the same memory where the MPI reaches it; else, of the host's, with a copy of all
// values before and after it, as a program without onebit would do it: the "Ranks:" line says which.

#include <mpi.h>
#include <onebit/onebit.h>
#include <onebit/onebit_mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "osu_bfloat16.hpp"
#include "osu_gpu.hpp"
#include "osu_options.hpp"
#include "osu_report.hpp"
#include "osu_support.hpp"
#include "osu_validation.hpp"

namespace {

using onebit::bench::Bfloat16Rival;
using onebit::bench::FloatBuffer;
using onebit::bench::Gpu;
using onebit::bench::OsuOptions;
using onebit::bench::OsuReport;
using onebit::bench::OsuRow;
using onebit::bench::Ranks;
using onebit::bench::require_success;

// The values on the host; with --accelerator cuda also in a GPU's memory, where calls then find them.
struct Buffers {
    Buffers(const Ranks& ranks, onebit_comm_t comm, bool shared, Gpu* rank_gpu, std::size_t count)
        : send(shared ? FloatBuffer(ranks, comm, count) : FloatBuffer(count)),
          receive(shared ? FloatBuffer(ranks, comm, count) : FloatBuffer(count)),
          gpu(rank_gpu) {
        std::mt19937_64 generator(20260000U + static_cast<unsigned>(ranks.rank));
        std::normal_distribution<float> gaussian;
        for (std::size_t i = 0; i < count; ++i) send[i] = gaussian(generator);
        if (gpu == nullptr) return;
        pinned[0] = gpu->pin(send, count);
        pinned[1] = gpu->pin(receive, count);
        gpu_send = gpu->allocate(count);
        gpu_receive = gpu->allocate(count);
        gpu->copy(gpu_send.get(), send.data(), count);
    }

    FloatBuffer send;
    FloatBuffer receive;
    Gpu* gpu;
    std::array<Gpu::Buffer, 2> pinned = {Gpu::nothing(), Gpu::nothing()};
    Gpu::Buffer gpu_send = Gpu::nothing();
    Gpu::Buffer gpu_receive = Gpu::nothing();
    bool mpi_reaches_gpu = false;
    std::optional<Bfloat16Rival> bfloat16; // with --full --bf16
};

// The time of each timed call on this rank, in microseconds.
struct Times {
    std::vector<double> compressed;
    std::vector<double> dense;    // empty without --full
    std::vector<double> bfloat16; // empty without --bf16
};

onebit_allreduce_t create_allreduce(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, const Gpu* gpu,
                                    std::size_t count) {
    onebit_allreduce_config_t config = ONEBIT_ALLREDUCE_CONFIG_INIT(count);
    config.threads = options.threads;
    config.algorithm = options.algorithm;
    config.codec = options.codec;
    config.scale = options.scale;
    config.group = options.group;
    config.check = options.check;
    if (gpu != nullptr) {
        config.memory = ONEBIT_MEMORY_CUDA;
        config.stream = gpu->stream();
    }
    onebit_allreduce_t allreduce = nullptr;
    require_success(ranks, onebit_allreduce_create(comm, &config, &allreduce), "onebit_allreduce_create");
    return allreduce;
}

onebit_allreduce_info_t get_info(const Ranks& ranks, onebit_allreduce_t allreduce) {
    onebit_allreduce_info_t info = ONEBIT_ALLREDUCE_INFO_INIT;
    require_success(ranks, onebit_allreduce_get_info(allreduce, &info), "onebit_allreduce_get_info");
    return info;
}

void run_allreduce(const Ranks& ranks, onebit_allreduce_t allreduce, Buffers& buffers) {
    const float* const send = buffers.gpu != nullptr ? buffers.gpu_send.get() : buffers.send.data();
    float* const receive = buffers.gpu != nullptr ? buffers.gpu_receive.get() : buffers.receive.data();
    require_success(ranks, onebit_allreduce_run(allreduce, send, receive), "onebit_allreduce_run");
    if (buffers.gpu != nullptr) buffers.gpu->wait();
}

// One call with other values, from and to the host's memory.
void run_allreduce_of(const Ranks& ranks, onebit_allreduce_t allreduce, Buffers& buffers, std::size_t count,
                      const float* input, float* output) {
    if (buffers.gpu == nullptr) {
        require_success(ranks, onebit_allreduce_run(allreduce, input, output), "onebit_allreduce_run");
        return;
    }
    float* const values = buffers.gpu_receive.get();
    buffers.gpu->copy(values, input, count);
    require_success(ranks, onebit_allreduce_run(allreduce, values, values), "onebit_allreduce_run");
    buffers.gpu->copy(output, values, count);
}

void sum_floats(const Ranks& ranks, const float* send, float* receive, std::size_t count) {
    MPI_Allreduce(send, receive, static_cast<int>(count), MPI_FLOAT, MPI_SUM, ranks.comm);
}

void dense_allreduce(const Ranks& ranks, Buffers& buffers, std::size_t count) {
    if (buffers.gpu == nullptr) {
        sum_floats(ranks, buffers.send.data(), buffers.receive.data(), count);
    } else if (buffers.mpi_reaches_gpu) {
        sum_floats(ranks, buffers.gpu_send.get(), buffers.gpu_receive.get(), count);
    } else {
        buffers.gpu->copy(buffers.send.data(), buffers.gpu_send.get(), count);
        sum_floats(ranks, buffers.send.data(), buffers.receive.data(), count);
        buffers.gpu->copy(buffers.gpu_receive.get(), buffers.receive.data(), count);
    }
}

template <class Call>
double time_us(const Ranks& ranks, Call&& call) {
    MPI_Barrier(ranks.comm);
    const double begin = MPI_Wtime();
    call();
    return (MPI_Wtime() - begin) * 1e6;
}

Times measure(const Ranks& ranks, const OsuOptions& options, onebit_allreduce_t allreduce, Buffers& buffers,
              std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    const std::size_t warmup = warmup_for(options, bytes);
    const std::size_t iterations = iterations_for(options, bytes);
    const auto compressed = [&] { run_allreduce(ranks, allreduce, buffers); };
    const auto dense = [&] { dense_allreduce(ranks, buffers, count); };
    Times times;
    times.compressed.reserve(iterations);
    if (options.full) times.dense.reserve(iterations);
    for (std::size_t i = 0; i < warmup + iterations; ++i) {
        const bool dense_first = options.full && i % 2 == 1;
        double dense_us = dense_first ? time_us(ranks, dense) : 0.0;
        const double compressed_us = time_us(ranks, compressed);
        if (options.full && !dense_first) dense_us = time_us(ranks, dense);
        const double bfloat16_us = buffers.bfloat16 ? time_us(ranks, [&] { buffers.bfloat16->allreduce(count); }) : 0.0;
        if (i < warmup) continue;
        times.compressed.push_back(compressed_us);
        if (options.full) times.dense.push_back(dense_us);
        if (buffers.bfloat16) times.bfloat16.push_back(bfloat16_us);
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

// Of the slowest rank's time in each iteration: a collective takes as long as its last rank. On rank 0.
double median_of_slowest(const Ranks& ranks, const std::vector<double>& times) {
    std::vector<double> slowest(times.size());
    MPI_Reduce(times.data(), slowest.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX, 0, ranks.comm);
    std::sort(slowest.begin(), slowest.end());
    const std::size_t half = slowest.size() / 2;
    return slowest.size() % 2 == 1 ? slowest[half] : (slowest[half - 1] + slowest[half]) / 2;
}

// Fills in what the times say; complete on rank 0.
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
    if (!times.bfloat16.empty()) row.bfloat16_median_us = median_of_slowest(ranks, times.bfloat16);
}

// How far one call that starts with a zero error state is from the exact average: |onebit - dense|_2 / |dense|_2.
double relative_error(const Ranks& ranks, onebit_allreduce_t allreduce, Buffers& buffers, std::size_t count) {
    FloatBuffer average(count);
    require_success(ranks, onebit_allreduce_reset(allreduce), "onebit_allreduce_reset");
    run_allreduce_of(ranks, allreduce, buffers, count, buffers.send.data(), average.data());
    sum_floats(ranks, buffers.send.data(), buffers.receive.data(), count);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double exact = static_cast<double>(buffers.receive[i]) / ranks.size;
        const double difference = static_cast<double>(average[i]) - exact;
        error += difference * difference;
        norm += exact * exact;
    }
    return std::sqrt(error / norm);
}

// As the library found out for its own messages.
bool mpi_reaches_gpu(const onebit_allreduce_info_t& info) {
    return std::string_view(info.transport).ends_with(", direct");
}

std::string describe_settings(const Ranks& ranks, const OsuOptions& options, const onebit_allreduce_info_t& info) {
    std::ostringstream text;
    text << "Ranks: " << ranks.size << ", kernels: " << info.kernels << ", threads: " << info.threads
         << ", codec: " << onebit::bench::kCodecNames[options.codec]
         << ", scale: " << (options.scale == ONEBIT_SCALE_L1 ? "l1" : "l2")
         << ", group: " << (options.group == ONEBIT_GROUP_BLOCK ? "block" : "buffer")
         << ", check: " << onebit::bench::kCheckNames[options.check];
    if (options.shared) text << ", buffers: onebit_mem_alloc";
    if (options.cuda) {
        text << ", MPI_Allreduce: "
             << (mpi_reaches_gpu(info) ? "of the GPUs' memory"
                                       : "of the host's memory, with copies from and to the GPUs'");
    }
    return text.str();
}

// One size: plan, time, check, print. True if valid.
bool benchmark_size(const Ranks& ranks, onebit_comm_t comm, const OsuOptions& options, const OsuReport& report,
                    Buffers& buffers, std::size_t bytes, std::string& last_plan) {
    const std::size_t count = bytes / sizeof(float);
    onebit_allreduce_t allreduce = create_allreduce(ranks, comm, options, buffers.gpu, count);
    buffers.mpi_reaches_gpu = mpi_reaches_gpu(get_info(ranks, allreduce));
    OsuRow row;
    row.bytes = bytes;
    summarize(ranks, measure(ranks, options, allreduce, buffers, bytes), row);
    if (options.full) {
        const onebit_allreduce_info_t info = get_info(ranks, allreduce);
        if (last_plan.empty()) report.comment(describe_settings(ranks, options, info));
        // The choice depends on the size, and a speedup near 1 means another thing where nothing was compressed.
        const std::string plan =
            std::string(onebit::bench::kAlgorithmNames[info.algorithm]) + " over " + info.transport;
        if (plan != last_plan) {
            report.comment("From " + std::to_string(bytes) + " bytes: " + plan + " (" + info.reason + ")");
        }
        last_plan = plan;
        row.wire_bytes = info.last_bytes_sent;
        row.relative_error = relative_error(ranks, allreduce, buffers, count);
    }
    if (options.validation) {
        const auto run = [&](const float* input, float* output) {
            run_allreduce_of(ranks, allreduce, buffers, count, input, output);
        };
        row.valid = validate_allreduce(ranks, allreduce, run, buffers.send.data(), count);
    }
    report.row(row);
    require_success(ranks, onebit_allreduce_destroy(allreduce), "onebit_allreduce_destroy");
    return row.valid;
}

// MIN, 2 MIN, 4 MIN, ... up to MAX; those that onebit cannot do are named in one comment.
std::vector<std::size_t> message_sizes(const Ranks& ranks, const OsuOptions& options, const OsuReport& report) {
    std::vector<std::size_t> sizes;
    std::size_t last_skipped = 0;
    for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
        const std::size_t count = bytes / sizeof(float);
        if (bytes % sizeof(float) == 0 && count >= static_cast<std::size_t>(ranks.size)) {
            sizes.push_back(bytes);
        } else {
            last_skipped = bytes;
        }
    }
    if (last_skipped != 0) {
        std::string range = std::to_string(options.min_bytes);
        if (last_skipped != options.min_bytes) range += " to " + std::to_string(last_skipped);
        report.comment("Skipped: " + range + " bytes (onebit needs whole float32 elements, at least one for each of " +
                       std::to_string(ranks.size) + " ranks)");
    }
    return sizes;
}

// Whether all ranks have what --accelerator asks for; if not, the first that hasn't says why.
bool has_accelerator(const Ranks& ranks, const OsuOptions& options) {
    const std::string missing = options.cuda ? Gpu::missing() : "";
    const int without = missing.empty() ? ranks.size : ranks.rank;
    int first = 0;
    MPI_Allreduce(&without, &first, 1, MPI_INT, MPI_MIN, ranks.comm);
    if (first == ranks.rank) {
        std::fprintf(stderr, "osu_onebit_allreduce: rank %d: --accelerator cuda: %s\n", ranks.rank, missing.c_str());
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

bool benchmark(const Ranks& ranks, const OsuOptions& options) {
    if (!has_accelerator(ranks, options)) return false;
    const OsuReport report(ranks.rank == 0, options);
    report.header();
    const onebit_comm_t comm = create_comm(ranks, options);
    const std::vector<std::size_t> sizes = message_sizes(ranks, options, report);
    bool valid = true;
    if (!sizes.empty()) {
        const std::size_t largest = sizes.back() / sizeof(float);
        std::optional<Gpu> gpu;
        if (options.cuda) gpu.emplace(ranks);
        Buffers buffers(ranks, comm, options.shared, gpu ? &*gpu : nullptr, largest);
        if (options.full && options.bfloat16) buffers.bfloat16.emplace(ranks, buffers.send.data(), largest);
        std::string last_plan;
        for (const std::size_t bytes : sizes) {
            valid = benchmark_size(ranks, comm, options, report, buffers, bytes, last_plan) && valid;
        }
    }
    require_success(ranks, onebit_comm_destroy(comm), "onebit_comm_destroy");
    return valid;
}

} // namespace

int main(int argc, char** argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    Ranks ranks;
    MPI_Comm_rank(ranks.comm, &ranks.rank);
    MPI_Comm_size(ranks.comm, &ranks.size);
    try {
        OsuOptions options;
        std::ostringstream unheard;
        const bool talks = ranks.rank == 0;
        std::optional<int> exit_status =
            onebit::bench::parse_options(argc, argv, options, talks ? std::cout : unheard, talks ? std::cerr : unheard);
        if (!exit_status) exit_status = benchmark(ranks, options) ? EXIT_SUCCESS : EXIT_FAILURE;
        std::cout.flush();
        MPI_Finalize();
        return *exit_status;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "osu_onebit_allreduce: rank %d: %s\n", ranks.rank, error.what());
        MPI_Abort(ranks.comm, EXIT_FAILURE);
    }
    return EXIT_FAILURE;
}
