// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <vector>

namespace bert {
namespace {

// Each of the last five leaves out a part that the method, or this library's form of it, needs.
constexpr Arm kArms[] = {
    {"adam", ONEBIT_OPTIMIZER_ADAM},
    {"onebit_adam", ONEBIT_OPTIMIZER_ONEBIT_ADAM},
    {"zero_one_adam", ONEBIT_OPTIMIZER_ZERO_ONE_ADAM},
    {"lamb", ONEBIT_OPTIMIZER_LAMB},
    {"onebit_lamb", ONEBIT_OPTIMIZER_ONEBIT_LAMB},
    {.name = "onebit_adam_early_freeze", .kind = ONEBIT_OPTIMIZER_ONEBIT_ADAM, .freeze_at_once = true},
    {.name = "onebit_adam_no_feedback", .kind = ONEBIT_OPTIMIZER_ONEBIT_ADAM, .error_feedback = false},
    {.name = "onebit_lamb_unscaled", .kind = ONEBIT_OPTIMIZER_ONEBIT_LAMB, .momentum_scaling = false},
    {.name = "onebit_lamb_one_scale", .kind = ONEBIT_OPTIMIZER_ONEBIT_LAMB, .one_scale = true},
    {.name = "onebit_lamb_one_scale_unscaled",
     .kind = ONEBIT_OPTIMIZER_ONEBIT_LAMB,
     .momentum_scaling = false,
     .one_scale = true},
};

// A quarter of the rates that make the dense optimizers fail, in runs of a third of the steps.
constexpr double kAdamLr = 1e-3, kLambLr = 5e-3;

// Shares of the steps, unless the command line gives other steps.
constexpr double kFreezeShare = 0.2;    // last step of the warm-up
constexpr double kLocalStepShare = 0.2; // from one doubling of the interval to the next

std::vector<std::string> arm_names() {
    std::vector<std::string> names;
    for (const Arm& arm : kArms) names.emplace_back(arm.name);
    return names;
}

// Names on the command line for the values of an enumeration.
template <class Value>
CLI::Validator names(const std::map<std::string, Value>& values) {
    return CLI::CheckedTransformer(values, CLI::ignore_case).description(""); // --help says it better in words
}

void add_general_options(CLI::App& app, Options& options, std::string& arm) {
    app.add_option("text", options.text, "The file to learn from: English, or another language of the Latin letters");
    app.add_option("--arm", arm, "Which optimizer, or which crippled one: one of the list below")
        ->check(CLI::IsMember(arm_names()).description(""));
    app.add_option("--output", options.output,
                   "File for JSON lines: one about the run, one per evaluation, one at the "
                   "end")
        ->default_str("");
    app.add_option("--seed", options.seed, "Of the initial parameters, the order of the examples and their masks");
    app.add_option("--vocabulary", options.vocabulary, "Tokens, letters included")->check(CLI::Range(256, 1000000));
    app.add_option("--sequence", options.sequence, "Tokens in a sequence")->check(CLI::Range(2, 4096));
    app.add_option("--width", options.width, "Numbers per token")->check(CLI::Range(1, 8192));
    app.add_option("--heads", options.heads, "Of attention, per layer")->check(CLI::Range(1, 256));
    app.add_option("--layers", options.layers, "Of the transformer")->check(CLI::Range(1, 256));
}

void add_training_options(CLI::App& app, Options& options) {
    app.add_option("--steps", options.steps, "Training steps")->check(CLI::PositiveNumber);
    app.add_option("--batch", options.batch, "Sequences per rank and step")->check(CLI::Range(1, 65536));
    app.add_option("--evaluate-every", options.evaluate_every, "Steps from one held-out loss to the next")
        ->check(CLI::PositiveNumber);
    app.add_option("--lr", options.lr, "Highest learning rate [Adam and its kin: 0.001, LAMB: 0.005]")
        ->default_str("")
        ->check(CLI::PositiveNumber);
    app.add_option("--lr-warmup", options.lr_warmup, "Share of the steps in which the learning rate rises")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--lr-decay-power", options.lr_decay_power, "It falls to zero as (what is left)^POWER")
        ->check(CLI::PositiveNumber);
    app.add_option("--beta2", options.beta2, "Of the variance's running mean")->check(CLI::Range(0.0, 1.0));
    app.add_option("--weight-decay", options.weight_decay, "Of all but biases and normalisations")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--max-grad-norm", options.max_grad_norm, "Clips the averaged gradient; 0: it does not")
        ->check(CLI::NonNegativeNumber);
}

void add_compression_options(CLI::App& app, Options& options) {
    app.add_option("--freeze-step", options.freeze_step, "Last step of the warm-up [20 % of the steps]")
        ->default_str("")
        ->check(CLI::PositiveNumber);
    app.add_option("--variance-updates", options.variance_updates,
                   "0/1 Adam: exact rounds before their interval doubles")
        ->check(CLI::PositiveNumber);
    app.add_option("--local-step-scaler", options.local_step_scaler,
                   "0/1 Adam: steps before the interval of all rounds doubles [20 % of the steps]")
        ->default_str("")
        ->check(CLI::PositiveNumber);
    app.add_option("--local-steps", options.local_steps, "0/1 Adam: the longest interval of rounds")
        ->check(CLI::PositiveNumber);
    app.add_option("--compressed", options.compressed, "What is compressed: momenta or updates, onebit's default")
        ->transform(names<onebit_compressed_t>(
            {{"momenta", ONEBIT_COMPRESSED_MOMENTA}, {"updates", ONEBIT_COMPRESSED_UPDATES}}));
    app.add_option("--scale", options.scale, "Of the signs: l1 or l2 [onebit's default]")
        ->default_str("")
        ->transform(names<onebit_scale_t>({{"l1", ONEBIT_SCALE_L1}, {"l2", ONEBIT_SCALE_L2}}));
    app.add_option("--group", options.group, "What shares a scale: block, buffer or tensor [onebit's default]")
        ->default_str("")
        ->transform(names<onebit_group_t>(
            {{"block", ONEBIT_GROUP_BLOCK}, {"buffer", ONEBIT_GROUP_BUFFER}, {"tensor", ONEBIT_GROUP_TENSOR}}));
}

void add_overlap_options(CLI::App& app, Options& options) {
    app.add_option("--bucket-size", options.bucket_size,
                   "Exchanges begin during the backward pass, in buckets of about so many elements; 0: they don't");
}

std::uint64_t share_of(std::uint64_t steps, double share) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share * double(steps)));
}

// Sets the options that depend on other options, unless they were given.
void fill_in(const std::string& arm, Options& options) {
    options.arm = *std::find_if(std::begin(kArms), std::end(kArms), [&](const Arm& a) { return a.name == arm; });
    if (options.lr == 0) options.lr = is_lamb(options.arm.kind) ? kLambLr : kAdamLr;
    if (options.arm.one_scale) options.group = ONEBIT_GROUP_BUFFER;
    if (options.arm.freeze_at_once) options.freeze_step = 1;
    if (options.freeze_step == 0) options.freeze_step = share_of(options.steps, kFreezeShare);
    if (options.local_step_scaler == 0) options.local_step_scaler = share_of(options.steps, kLocalStepShare);
}

void check(const Options& options) {
    if (options.width % options.heads != 0) {
        throw CLI::ValidationError("--width", "it must be a multiple of --heads");
    }
    const bool zero_one = options.arm.kind == ONEBIT_OPTIMIZER_ZERO_ONE_ADAM;
    // Between two rounds the ranks' parameters differ: there is no single model to evaluate.
    if (zero_one && (options.evaluate_every % options.local_steps != 0 || options.steps % options.local_steps != 0)) {
        throw CLI::ValidationError("--local-steps", "--evaluate-every and --steps must be multiples of it");
    }
}

} // namespace

bool is_lamb(onebit_optimizer_kind_t kind) {
    return kind == ONEBIT_OPTIMIZER_LAMB || kind == ONEBIT_OPTIMIZER_ONEBIT_LAMB;
}

std::optional<int> parse(int argc, char** argv, int rank, Options& options) {
    CLI::App app(
        "Trains a small BERT on a text, its gradients averaged by one of onebit's optimizers.\n"
        "To be run under mpirun; each rank trains on sequences of its own.",
        "pretrain_bert");
    app.option_defaults()->always_capture_default();
    std::string arm = options.arm.name, footer = "Arms:";
    for (const std::string& name : arm_names()) footer += " " + name;
    app.footer(footer);
    add_general_options(app, options, arm);
    add_training_options(app, options);
    add_compression_options(app, options);
    add_overlap_options(app, options);
    try {
        app.parse(argc, argv);
        fill_in(arm, options);
        check(options);
    } catch (const CLI::ParseError& error) {
        std::ostream silent(nullptr);
        const int code = app.exit(error, rank == 0 ? std::cout : silent, rank == 0 ? std::cerr : silent);
        return code == 0 ? 0 : 1;
    }
    return std::nullopt;
}

std::uint64_t lr_warmup_steps(const Options& options) {
    return static_cast<std::uint64_t>(options.lr_warmup * double(options.steps));
}

double learning_rate(const Options& options, std::uint64_t step) {
    const double warmup = double(lr_warmup_steps(options)), steps = double(options.steps);
    if (double(step) <= warmup) return options.lr * double(step) / warmup;
    return options.lr * std::pow((steps - double(step) + 1) / (steps - warmup), options.lr_decay_power);
}

} // namespace bert
