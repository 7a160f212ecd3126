// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// How long a step takes after the freeze, or with a kind that doesn't freeze, for each form of its exchange:
//
//     mpirun -n 4 build/release/bench/step_benchmark --algorithms pipelined,two_level
//
// Each form has an optimizer; all share parameters and gradients. The optimizers' steps take turns.

#include <mpi.h>
#include <onebit/onebit_mpi.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <onebit/onebit.hpp>
#include <random>
#include <string>
#include <vector>

#include "osu_options.hpp"
#include "samples.hpp"
#include "steady_steps.hpp"

namespace {

using onebit::bench::kAlgorithmNames;
using onebit::bench::kCodecNames;
using onebit::bench::kOptimizerNames;

struct Options {
    std::size_t elements = 10'000'000;
    std::size_t rounds = 11;
    std::uint64_t bucket_size = 0;
    std::string kind = "onebit_adam";
    std::vector<std::string> algorithms = {"pipelined", "two_level"};
    std::string codec = "sign";
};

std::size_t place_of(const std::string& word, const auto& words) {
    return static_cast<std::size_t>(std::find(words.begin(), words.end(), word) - words.begin());
}

struct Model {
    Model(std::size_t elements, int rank) : parameters(elements), gradients(elements) {
        std::mt19937 generator(static_cast<unsigned>(rank));
        onebit::bench::fill_with_gaussians(gradients.data(), elements, generator);
        std::size_t at = 0;
        for (const std::size_t size : onebit::bench::cut_into_tensors(elements)) {
            tensors.push_back(ONEBIT_TENSOR_INIT(parameters.data() + at, gradients.data() + at, size));
            at += size;
        }
    }
    std::vector<float> parameters, gradients;
    std::vector<onebit_tensor_t> tensors;
};

class Form {
  public:
    Form(const onebit::Communicator& communicator, const Model& model, const Options& options,
         const std::string& algorithm) {
        const auto kind = static_cast<onebit_optimizer_kind_t>(place_of(options.kind, kOptimizerNames));
        onebit_optimizer_config_t config = onebit::bench::steady_config(kind);
        config.bucket_size = options.bucket_size;
        config.algorithm = static_cast<onebit_algorithm_t>(place_of(algorithm, kAlgorithmNames));
        config.codec = static_cast<onebit_codec_t>(place_of(options.codec, kCodecNames));
        optimizer_ = std::make_unique<onebit::Optimizer>(communicator, config, model.tensors);
    }

    void step() {
        MPI_Barrier(MPI_COMM_WORLD);
        double time = -MPI_Wtime();
        optimizer_->step();
        time += MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        times_.push_back(time * 1e3);
    }
    void forget_times() { times_.clear(); }

    onebit_optimizer_info_t info() const {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        onebit::check(onebit_optimizer_get_info(optimizer_->get(), &info));
        return info;
    }
    double median() const { return onebit::bench::median(times_); }

  private:
    std::unique_ptr<onebit::Optimizer> optimizer_;
    std::vector<double> times_; // milliseconds, of the slowest rank
};

void run(const Options& options) {
    onebit_comm_t handle = nullptr;
    onebit::check(onebit_comm_create_mpi(MPI_COMM_WORLD, &handle));
    const onebit::Communicator communicator(handle);
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const Model model(options.elements, rank);
    std::vector<Form> forms;
    for (const std::string& algorithm : options.algorithms) forms.emplace_back(communicator, model, options, algorithm);
    constexpr std::size_t kWarmUp = 3; // past the freeze, and every page touched
    for (std::size_t round = 0; round < kWarmUp + options.rounds; ++round) {
        for (Form& form : forms) {
            if (round == kWarmUp) form.forget_times();
            form.step();
        }
    }
    if (rank != 0) return;
    std::printf("# %s, codec %s, %zu float32 elements, %d ranks, %zu rounds in turn, medians of the slowest rank\n",
                options.kind.c_str(), options.codec.c_str(), options.elements, ranks, options.rounds);
    std::printf("%-14s%14s%16s%26s\n", "# Exchange", "step, ms", "of the first", "rank 0 sends, bytes/step");
    for (const Form& form : forms) {
        const onebit_optimizer_info_t info = form.info();
        const std::uint64_t compressed_steps = info.steps - info.freeze_step;
        std::printf("%-14s%14.2f%16.2f%26llu\n", kAlgorithmNames[info.algorithm], form.median(),
                    form.median() / forms.front().median(),
                    static_cast<unsigned long long>(info.compressed_bytes_sent > 0
                                                        ? info.compressed_bytes_sent / compressed_steps
                                                        : info.warmup_bytes_sent / info.steps));
        std::printf("# %s: %s\n", kAlgorithmNames[info.algorithm], info.reason);
    }
}

} // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    Options options;
    CLI::App app("How long an optimizer's step takes, by the form of its exchange", "step_benchmark");
    app.add_option("--elements", options.elements, "Of all tensors (default 10000000)")
        ->check(CLI::Range(std::size_t{10000}, std::size_t{1} << 36));
    app.add_option("--rounds", options.rounds, "Measurements of each (default 11)")->check(CLI::PositiveNumber);
    app.add_option("--optimizer", options.kind,
                   "adam, onebit_adam, lamb, onebit_lamb or zero_one_adam (default onebit_adam)")
        ->check(CLI::IsMember(std::vector<std::string>(kOptimizerNames.begin(), kOptimizerNames.end())));
    app.add_option("--bucket-size", options.bucket_size, "In elements (default 0: all at once)");
    app.add_option("--algorithms", options.algorithms,
                   "Forms of the exchange: auto, flat, pipelined, two_level, bruck, ring (default pipelined,two_level)")
        ->delimiter(',')
        ->check(CLI::IsMember(onebit::bench::kNamedAlgorithms));
    app.add_option("--codec", options.codec, "Of the exchange (default sign)") // --help names them all
        ->check(CLI::IsMember(std::vector<std::string>(kCodecNames.begin(), kCodecNames.end())));
    int code = 0;
    try {
        app.parse(argc, argv);
        run(options);
    } catch (const CLI::ParseError& error) {
        code = app.exit(error);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "step_benchmark: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return code;
}
