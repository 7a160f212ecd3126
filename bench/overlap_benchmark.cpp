// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How much of an optimizer's communication hides behind the backward pass, and which bucket size hides most:
//
//     mpirun -n 2 build/release/bench/overlap_benchmark
//
// The backward pass is simulated: the tensors of a transformer, last to first, each keeps this rank's core busy for a
// time proportional to its size. One way exchanges everything in onebit_optimizer_step, the others call
// onebit_optimizer_grad_ready after each tensor. A step's time minus its backward pass's time is the cost of
// communication and optimizer. The ways take turns within each round.

#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <onebit/onebit.hpp>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Options {
    std::size_t elements = std::size_t{1} << 24;
    double backward_ms = 200;
    std::size_t rounds = 11;
    std::vector<std::uint64_t> bucket_sizes = {1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23};
};

// An embedding, then layers of attention, feed-forward and normalisation.
std::vector<std::size_t> transformer(std::size_t elements) {
    constexpr std::size_t kLayers = 24;
    const std::size_t embedding = elements / 5;
    const std::size_t layer = (elements - embedding) / kLayers;
    std::vector<std::size_t> sizes = {embedding};
    for (std::size_t l = 0; l < kLayers; ++l) {
        const std::size_t norm = std::max<std::size_t>(1, layer / 512);
        const std::size_t attention = layer / 3;
        sizes.insert(sizes.end(), {attention, layer - attention - norm, norm});
    }
    return sizes;
}

// The parameters and gradients that all optimizers of this program share.
struct Model {
    explicit Model(std::size_t elements) : sizes(transformer(elements)), parameters(elements), gradients(elements) {
        for (std::size_t i = 0; i < elements; ++i) gradients[i] = static_cast<float>(i * 2654435761U % 2001) - 1000;
    }

    std::vector<onebit_tensor_t> tensors() {
        std::vector<onebit_tensor_t> all;
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            all.push_back(ONEBIT_TENSOR_INIT(parameters.data() + at, gradients.data() + at, size));
            at += size;
        }
        return all;
    }

    std::vector<std::size_t> sizes;
    std::vector<float> parameters, gradients;
};

// One kind of optimizer with one bucket size.
struct Way {
    Way(const onebit::Communicator& communicator, Model& model, onebit_optimizer_kind_t kind, std::uint64_t size)
        : name(kind == ONEBIT_OPTIMIZER_ADAM ? "Adam" : "1-bit Adam"), bucket_size(size) {
        onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, 1e-6);
        if (kind == ONEBIT_OPTIMIZER_ONEBIT_ADAM) config.freeze_step = 1;
        config.bucket_size = size;
        optimizer = std::make_unique<onebit::Optimizer>(communicator, config, model.tensors());
    }

    // Returns how long the step took, backward pass included.
    double step(const Model& model, double backward_ms) {
        const Clock::time_point begin = Clock::now();
        double due = 0;
        double in_calls = 0; // this time delays the backward pass, as in a training
        for (std::size_t k = model.sizes.size(); k-- > 0;) {
            due += backward_ms * static_cast<double>(model.sizes[k]) / static_cast<double>(model.gradients.size());
            while (milliseconds_since(begin) - in_calls < due) {
            } // the gradients of tensor k are computed
            if (bucket_size == 0) continue;
            const Clock::time_point call = Clock::now();
            optimizer->grad_ready(k);
            in_calls += milliseconds_since(call);
        }
        optimizer->step();
        return milliseconds_since(begin);
    }

    double median() {
        std::sort(times.begin(), times.end());
        return times[times.size() / 2];
    }

    std::string name;
    std::uint64_t bucket_size;
    std::unique_ptr<onebit::Optimizer> optimizer;
    std::vector<double> times;
};

void run(const Options& options) {
    onebit_comm_t handle = nullptr;
    onebit::check(onebit_comm_create_mpi(MPI_COMM_WORLD, &handle));
    const onebit::Communicator communicator(handle);
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Model model(options.elements);
    std::vector<Way> ways;
    for (const onebit_optimizer_kind_t kind : {ONEBIT_OPTIMIZER_ADAM, ONEBIT_OPTIMIZER_ONEBIT_ADAM}) {
        ways.emplace_back(communicator, model, kind, 0);
        for (const std::uint64_t size : options.bucket_sizes) ways.emplace_back(communicator, model, kind, size);
    }
    constexpr std::size_t kWarmUp = 3; // past the freeze, and every page touched
    for (std::size_t round = 0; round < kWarmUp + options.rounds; ++round) {
        for (Way& way : ways) {
            MPI_Barrier(MPI_COMM_WORLD);
            double time = way.step(model, options.backward_ms);
            MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (round >= kWarmUp) way.times.push_back(time);
        }
    }
    if (rank != 0) return;
    std::printf(
        "# %zu float32 elements in %zu tensors, %d ranks, a backward pass of %g ms, %zu rounds in turn, medians\n",
        options.elements, model.sizes.size(), ranks, options.backward_ms, options.rounds);
    std::printf("%-14s%16s%12s%22s%18s\n", "# Optimizer", "bucket size", "step, ms", "more than backward",
                "of that without");
    double without = 0;
    for (Way& way : ways) {
        const double exposed = way.median() - options.backward_ms;
        if (way.bucket_size == 0) without = exposed;
        std::printf("%-14s%16llu%12.1f%22.1f%18.2f\n", way.name.c_str(),
                    static_cast<unsigned long long>(way.bucket_size), way.median(), exposed, exposed / without);
    }
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    Options options;
    CLI::App app("How much of an optimizer's communication hides behind the backward pass", "overlap_benchmark");
    app.add_option("--elements", options.elements, "Of all tensors (default 2^24)")
        ->check(CLI::Range(std::size_t{100000}, std::size_t{1} << 36));
    app.add_option("--backward-ms", options.backward_ms, "How long a backward pass takes (default 200)")
        ->check(CLI::PositiveNumber);
    app.add_option("--rounds", options.rounds, "Measurements of each (default 11)")->check(CLI::PositiveNumber);
    app.add_option("--bucket-sizes", options.bucket_sizes, "In elements (default 2^18 to 2^23)")
        ->check(CLI::PositiveNumber);
    int code = 0;
    try {
        app.parse(argc, argv);
        run(options);
    } catch (const CLI::ParseError& error) {
        code = app.exit(error);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "overlap_benchmark: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return code;
}
