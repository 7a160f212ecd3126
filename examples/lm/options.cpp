// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>

namespace lm {
namespace {

constexpr double kWarmUpShare = 0.2; // of the steps, unless --freeze-step says otherwise

// Names on the command line for the values of an enumeration.
template <class Value>
CLI::Validator names(const std::map<std::string, Value>& values) {
    return CLI::CheckedTransformer(values, CLI::ignore_case).description(""); // --help says it better in words
}

void add_training_options(CLI::App& app, Options& options) {
    app.add_option("text", options.text, "The file to learn from (any bytes)");
    app.add_option("--steps", options.steps, "Training steps")->check(CLI::PositiveNumber);
    app.add_option("--batch", options.batch, "Examples per rank and step")->check(CLI::Range(1, 65536));
    app.add_option("--lr", options.lr, "Highest learning rate")->check(CLI::PositiveNumber);
    app.add_option("--context", options.shape.context, "Bytes that the model sees")->check(CLI::Range(1, 1024));
    app.add_option("--embedding", options.shape.embedding, "Numbers per byte")->check(CLI::Range(1, 1024));
    app.add_option("--hidden", options.shape.hidden, "Hidden units")->check(CLI::Range(1, 65536));
    app.add_option("--seed", options.seed, "Of the initial parameters and of the order of the examples");
}

const std::map<std::string, onebit_optimizer_kind_t> kKinds = {{"adam", ONEBIT_OPTIMIZER_ADAM},
                                                               {"onebit_adam", ONEBIT_OPTIMIZER_ONEBIT_ADAM},
                                                               {"zero_one_adam", ONEBIT_OPTIMIZER_ZERO_ONE_ADAM},
                                                               {"lamb", ONEBIT_OPTIMIZER_LAMB},
                                                               {"onebit_lamb", ONEBIT_OPTIMIZER_ONEBIT_LAMB}};
const std::map<std::string, onebit_codec_t> kCodecs = {
    {"sign", ONEBIT_CODEC_SIGN},   {"int8", ONEBIT_CODEC_INT8},         {"int4", ONEBIT_CODEC_INT4},
    {"fp4", ONEBIT_CODEC_FP4},     {"bfloat16", ONEBIT_CODEC_BFLOAT16}, {"ternary", ONEBIT_CODEC_TERNARY},
    {"topk", ONEBIT_CODEC_TOPK},   {"float16", ONEBIT_CODEC_FLOAT16},   {"int2", ONEBIT_CODEC_INT2},
    {"means", ONEBIT_CODEC_MEANS}, {"randomk", ONEBIT_CODEC_RANDOMK}};

// "adam" or "adam:int8".
Algorithm parse_algorithm(std::string text) {
    text = CLI::detail::to_lower(text);
    const std::size_t colon = text.find(':');
    const auto kind = kKinds.find(text.substr(0, colon));
    const auto codec = kCodecs.find(colon == std::string::npos ? "sign" : text.substr(colon + 1));
    if (kind == kKinds.end() || codec == kCodecs.end()) {
        throw CLI::ValidationError("--algorithms", "\"" + text + "\" is no optimizer, nor one with a codec behind a :");
    }
    return {kind->second, codec->second};
}

void add_compression_options(CLI::App& app, Options& options) {
    app.add_option("--variance-updates", options.variance_updates,
                   "0/1 Adam: exact rounds before their interval doubles")
        ->check(CLI::PositiveNumber);
    app.add_option("--scale", options.scale, "Of the signs: l1 or l2 [onebit's default]")
        ->default_str("")
        ->transform(names<onebit_scale_t>({{"l1", ONEBIT_SCALE_L1}, {"l2", ONEBIT_SCALE_L2}}));
    app.add_option("--group", options.group, "What shares a scale: block, buffer or tensor [onebit's default]")
        ->default_str("")
        ->transform(names<onebit_group_t>(
            {{"block", ONEBIT_GROUP_BLOCK}, {"buffer", ONEBIT_GROUP_BUFFER}, {"tensor", ONEBIT_GROUP_TENSOR}}));
    app.add_option("--error-type", options.error_type, "What errors are kept in: float32, bfloat16 or int8")
        ->default_str("float32")
        ->transform(names<onebit_datatype_t>(
            {{"float32", ONEBIT_FLOAT32}, {"bfloat16", ONEBIT_BFLOAT16}, {"int8", ONEBIT_INT8}}));
}

void add_progress_options(CLI::App& app, Options& options) {
    app.add_option("--log-every", options.log_every, "Steps from line to line of plain progress")
        ->check(CLI::PositiveNumber);
    app.add_option("--progress", options.progress, "bar, lines, or auto: a bar if stdout is known to be a terminal")
        ->default_str("auto")
        ->transform(names<ProgressStyle>(
            {{"auto", ProgressStyle::kAuto}, {"bar", ProgressStyle::kBar}, {"lines", ProgressStyle::kLines}}));
}

// A step, or "auto", or, if the text is empty, a share of the steps.
std::uint64_t parse_freeze_step(const std::string& text, std::uint64_t steps) {
    if (text.empty()) return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(kWarmUpShare * double(steps)));
    if (text == "auto") return ONEBIT_FREEZE_AUTO;
    std::uint64_t step = 0;
    if (!CLI::detail::lexical_cast(text, step) || step == 0) {
        throw CLI::ValidationError("--freeze-step", "\"" + text + "\" is neither a step, 1 or later, nor \"auto\"");
    }
    return step;
}

} // namespace

std::string name_of(onebit_codec_t codec) {
    for (const auto& [name, value] : kCodecs) {
        if (value == codec) return name;
    }
    return "codec " + std::to_string(codec);
}

std::optional<int> parse(int argc, char** argv, int rank, Options& options) {
    CLI::App app(
        "Trains a small language model with dense and with compressing optimizers, and compares them.\n"
        "To be run under mpirun; each rank trains on its own part of the text.",
        "train_lm");
    app.option_defaults()->always_capture_default();
    std::string freeze_step;
    std::vector<std::string> algorithms;
    add_training_options(app, options);
    app.add_option("--algorithms", algorithms,
                   "Of adam,onebit_adam,zero_one_adam,lamb,onebit_lamb: which to train with, in this order. With a "
                   "codec's name behind it, as in adam:int8, an optimizer exchanges by that codec: " +
                       CLI::detail::generate_map(kCodecs, true))
        ->delimiter(',')
        ->default_str("adam,onebit_adam");
    add_compression_options(app, options);
    app.add_option("--freeze-step", freeze_step, "Last step before compression begins, or auto [20 % of the steps]");
    add_progress_options(app, options);
    try {
        app.parse(argc, argv);
        if (!algorithms.empty()) options.algorithms.clear();
        for (const std::string& text : algorithms) options.algorithms.push_back(parse_algorithm(text));
        options.freeze_step = parse_freeze_step(freeze_step, options.steps);
    } catch (const CLI::ParseError& error) {
        std::ostream silent(nullptr);
        const int code = app.exit(error, rank == 0 ? std::cout : silent, rank == 0 ? std::cerr : silent);
        return code == 0 ? 0 : 1;
    }
    return std::nullopt;
}

} // namespace lm
