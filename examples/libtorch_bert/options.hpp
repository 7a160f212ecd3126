// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The command line of pretrain_bert, and the arms of the experiment.

#ifndef ONEBIT_EXAMPLES_BERT_OPTIONS_HPP
#define ONEBIT_EXAMPLES_BERT_OPTIONS_HPP

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace bert {

// One way to train.
struct Arm {
    const char* name;
    onebit_optimizer_kind_t kind;
    bool freeze_at_once = false;  // after step 1, when the variance is that of one gradient
    bool error_feedback = true;   // false: a message's compression error is thrown away
    bool momentum_scaling = true; // of 1-bit LAMB
    bool one_scale = false;       // for all that a rank sends, as in the papers; --group otherwise
};

// True for the kinds that have a trust ratio.
bool is_lamb(onebit_optimizer_kind_t kind);

struct Options {
    std::string text = "text.txt";
    std::string output; // of the JSON lines; empty: none
    Arm arm = {"adam", ONEBIT_OPTIMIZER_ADAM};
    std::uint64_t seed = 1;

    // The model. The sizes of the torch module are made from these.
    std::int64_t vocabulary = 1000, sequence = 64, width = 128, heads = 4, layers = 2;

    // The training.
    std::uint64_t steps = 3840;
    std::size_t batch = 4; // sequences per rank and step
    std::uint64_t evaluate_every = 240;
    double lr = 0;             // at its highest; filled in by parse(), as the optimizer's default
    double lr_warmup = 0.1;    // share of the steps in which it rises, linearly
    double lr_decay_power = 1; // then it falls to zero as (share of the decay that is left)^power
    double beta2 = 0.999;
    double weight_decay = 0.01; // not of biases and normalisations
    double max_grad_norm = 0;

    // The compression. The steps are filled in by parse().
    std::uint64_t freeze_step = 0;
    std::uint64_t variance_updates = 64; ///< more than the papers' 16: these trainings are short
    std::uint64_t local_step_scaler = 0;
    std::uint64_t local_steps = 16;
    onebit_compressed_t compressed = ONEBIT_COMPRESSED_MOMENTA; // as in the papers, whose settings the arms vary
    std::optional<onebit_scale_t> scale;                        // nothing: onebit's default
    std::optional<onebit_group_t> group;                        // likewise

    std::uint64_t bucket_size = 0; // of exchanges that begin during the backward pass; 0: none begins then
};

// Fills `options`. Returns the exit code if the program is to end at once (--help, or a mistake, which rank 0
// explains).
std::optional<int> parse(int argc, char** argv, int rank, Options& options);

// Of a step, counted from 1: linear warm-up, then polynomial decay to zero.
double learning_rate(const Options& options, std::uint64_t step);
std::uint64_t lr_warmup_steps(const Options& options);

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_OPTIONS_HPP
