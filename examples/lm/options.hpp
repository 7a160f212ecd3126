// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The command line of train_lm.

#ifndef ONEBIT_EXAMPLES_LM_OPTIONS_HPP
#define ONEBIT_EXAMPLES_LM_OPTIONS_HPP

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "progress.hpp"

namespace lm {

// How one training averages.
struct Algorithm {
    onebit_optimizer_kind_t kind = ONEBIT_OPTIMIZER_ADAM;
    onebit_codec_t codec = ONEBIT_CODEC_SIGN;
};

// "int8", as on the command line.
std::string name_of(onebit_codec_t codec);

struct Options {
    std::string text = "text.txt";
    std::vector<Algorithm> algorithms = {{ONEBIT_OPTIMIZER_ADAM}, {ONEBIT_OPTIMIZER_ONEBIT_ADAM}};
    std::uint64_t steps = 2000;
    std::size_t batch = 64;        // examples per rank and step
    double lr = 1e-2;              // at its highest
    std::uint64_t freeze_step = 0; // the last step of the warm-up; filled in by parse()
    Shape shape = {.context = 12, .embedding = 24, .hidden = 288};
    std::uint64_t seed = 1;
    std::uint64_t variance_updates = 16; // 0/1 Adam's exact rounds before their interval doubles
    std::optional<onebit_scale_t> scale; // nothing: onebit's default
    std::optional<onebit_group_t> group; // likewise
    onebit_datatype_t error_type = ONEBIT_FLOAT32;
    std::uint64_t log_every = 200;
    ProgressStyle progress = ProgressStyle::kAuto;
};

// Fills `options`. Returns the exit code if the program is to end at once (--help, or a mistake, which rank 0
// explains).
std::optional<int> parse(int argc, char** argv, int rank, Options& options);

} // namespace lm

#endif // ONEBIT_EXAMPLES_LM_OPTIONS_HPP
