// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains on a hard problem with four ranks in one process, by one kind of optimizer, and prints a line of JSON.
// Settings that aren't given keep their defaults: the defaults are tested here.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <numbers>
#include <onebit/onebit.hpp>
#include <thread>

#include "hard_problems/problems.hpp"

namespace {

struct Options {
    std::string problem = "quadratic";
    std::string kind = "adam";
    std::string digits = "digits.csv";
    double lr = 3e-3;
    std::uint64_t seed = 1;
    std::uint64_t steps = 0; ///< 0: the problem's own
    std::string freeze = "auto";
    std::uint32_t follow = 0;
    std::string compressed = "updates";
    bool deepspeed = false; ///< by the formulas of its last version that had them, 0.19.6
    int ranks = 4;
};

const std::map<std::string, onebit_optimizer_kind_t> kKinds = {
    {"adam", ONEBIT_OPTIMIZER_ADAM},
    {"onebit_adam", ONEBIT_OPTIMIZER_ONEBIT_ADAM},
    {"lamb", ONEBIT_OPTIMIZER_LAMB},
    {"onebit_lamb", ONEBIT_OPTIMIZER_ONEBIT_LAMB},
    {"zero_one", ONEBIT_OPTIMIZER_ZERO_ONE_ADAM},
};

double learning_rate(double lr, std::uint64_t step, std::uint64_t steps) {
    const double t = static_cast<double>(step);
    const double cosine = (1 + std::cos(std::numbers::pi * t / static_cast<double>(steps))) / 2;
    return lr * std::min(1.0, t / 100) * cosine + lr / 1000;
}

onebit_optimizer_config_t config_of(const Options& options) {
    const onebit_optimizer_kind_t kind = kKinds.at(options.kind);
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, options.lr);
    config.follow_interval = options.follow;
    if (options.freeze == "never") config.freeze_step = ONEBIT_FREEZE_NEVER;
    if (options.freeze == "paper") config.freeze_step = ONEBIT_FREEZE_PAPER;
    if (options.compressed == "momenta") config.compressed = ONEBIT_COMPRESSED_MOMENTA;
    if (std::isdigit(static_cast<unsigned char>(options.freeze[0])) != 0)
        config.freeze_step = std::stoull(options.freeze);
    if (options.deepspeed) {
        config.compressed = ONEBIT_COMPRESSED_MOMENTA;
        config.follow_interval = ONEBIT_FOLLOW_NEVER;
        config.group = ONEBIT_GROUP_TENSOR;
        config.bias_correction = 0;
        config.local_step_scaler = 32678;
    }
    return config;
}

/// What rank 0 has at the end.
struct Outcome {
    hard::Vector parameters;
    onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
};

Outcome train(const onebit::Communicator& comm, int rank, const hard::Problem& problem, const Options& options) {
    hard::Vector x = problem.start();
    hard::Vector gradient(x.size());
    std::vector<onebit_tensor_t> tensors;
    std::size_t offset = 0;
    for (const std::size_t size : problem.sizes()) {
        tensors.push_back(ONEBIT_TENSOR_INIT(x.data() + offset, gradient.data() + offset, size));
        offset += size;
    }
    onebit::Optimizer optimizer(comm, config_of(options), tensors);
    const std::uint64_t steps = options.steps > 0 ? options.steps : problem.steps();
    std::mt19937_64 generator(options.seed * 1000 + static_cast<std::uint64_t>(rank) + 17);
    for (std::uint64_t step = 1; step <= steps; ++step) {
        problem.gradient(x, generator, gradient);
        optimizer.set_lr(learning_rate(options.lr, step, steps));
        optimizer.step();
    }
    return {x, optimizer.info()};
}

int run(const Options& options) {
    const std::unique_ptr<hard::Problem> problem = hard::make_problem(options.problem, options.seed, options.digits);
    const std::vector<onebit::Communicator> comms = onebit::Communicator::loopback(options.ranks);
    std::vector<std::thread> threads;
    std::mutex mutex;
    Outcome outcome;
    std::string failure;
    for (int rank = 0; rank < options.ranks; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                Outcome own = train(comms[static_cast<std::size_t>(rank)], rank, *problem, options);
                if (rank == 0) outcome = std::move(own);
            } catch (const std::exception& error) {
                const std::scoped_lock lock(mutex);
                failure = error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("{\"problem\": \"%s\", \"kind\": \"%s\", \"lr\": %g, \"seed\": %llu", options.problem.c_str(),
                options.kind.c_str(), options.lr, static_cast<unsigned long long>(options.seed));
    if (!failure.empty()) {
        std::ranges::replace(failure, '"', '\''); // as JSON wants it
        std::printf(", \"failure\": \"%s\"}\n", failure.c_str());
        return 0;
    }
    const hard::Loss loss = problem->loss(outcome.parameters);
    if (!std::isfinite(loss.value)) {
        std::printf(", \"failure\": \"the loss is not finite\"}\n");
        return 0;
    }
    const onebit_optimizer_info_t& info = outcome.info;
    std::printf(
        ", \"loss\": %.6g, \"accuracy\": %.4f, \"freeze_step\": %llu, \"thaws\": %llu, \"waits_for\": %d, "
        "\"tensor\": %u, \"ratio\": %.3g, \"compressed_steps\": %llu, \"compressed_bytes\": %llu}\n",
        loss.value, loss.accuracy, static_cast<unsigned long long>(info.freeze_step),
        static_cast<unsigned long long>(info.thaws), info.freeze_wait, info.freeze_tensor, info.freeze_ratio,
        static_cast<unsigned long long>(info.compressed_rounds),
        static_cast<unsigned long long>(info.compressed_bytes_sent));
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Trains on a hard problem with four ranks in one process");
    app.add_option("--problem", options.problem, "quadratic, logistic or digits")
        ->check(CLI::IsMember({"quadratic", "logistic", "digits"}));
    app.add_option("--kind", options.kind, "adam, onebit_adam, lamb, onebit_lamb or zero_one")
        ->check(CLI::IsMember({"adam", "onebit_adam", "lamb", "onebit_lamb", "zero_one"}));
    app.add_option("--digits", options.digits, "File of digits: 64 pixels and a label a line");
    app.add_option("--lr", options.lr, "Highest learning rate");
    app.add_option("--seed", options.seed, "Of the problem, its start and its examples");
    app.add_option("--steps", options.steps, "Steps [the problem's own number]");
    app.add_option("--follow", options.follow, "steps between measurements of a frozen variance; 4294967295: none");
    app.add_option("--freeze", options.freeze, "auto, paper, never, or the last step before compression")
        ->check(CLI::IsMember({"auto", "paper", "never"}) | CLI::PositiveNumber);
    app.add_option("--compressed", options.compressed, "updates, or momenta as in the papers")
        ->check(CLI::IsMember({"updates", "momenta"}));
    app.add_flag(
        "--deepspeed", options.deepspeed,
        "A kind that freezes as DeepSpeed 0.19.6 has it: momenta, a scale for each tensor, no bias correction, "
        "nothing followed. It has no automatic freeze");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "hard_problems: %s\n", error.what());
        return 1;
    }
}
