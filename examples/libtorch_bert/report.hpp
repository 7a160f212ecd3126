// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What rank 0 reports: lines for people on stdout, JSON lines in a file.

#ifndef ONEBIT_EXAMPLES_BERT_REPORT_HPP
#define ONEBIT_EXAMPLES_BERT_REPORT_HPP

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "options.hpp"

namespace bert {

// The training's state after a step.
struct Evaluation {
    std::uint64_t step;
    double training_loss;     // mean since the last evaluation, over all ranks; NaN before the first step
    double held_out_loss;     // nats per token to guess
    std::uint64_t bytes_sent; // by rank 0, in the optimizer
    double seconds;           // of training, without the evaluations
};

class Report {
  public:
    // Silent on all ranks but rank 0. Throws if the file can't be written.
    Report(const Options& options, int rank, int ranks);

    void begin(std::uint64_t parameters, std::int64_t vocabulary, double unigram_loss);
    void add(const Evaluation& evaluation);
    // The last line. `diverged`: the training was given up.
    void end(const onebit_optimizer_info_t& info, bool diverged);

  private:
    const Options& options_;
    int ranks_;
    bool silent_;
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_REPORT_HPP
