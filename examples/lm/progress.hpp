// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What rank 0 shows while a training runs: a bar that is redrawn in place, or plain lines.

#ifndef ONEBIT_EXAMPLES_LM_PROGRESS_HPP
#define ONEBIT_EXAMPLES_LM_PROGRESS_HPP

#include <chrono>
#include <cstdint>
#include <string>

namespace lm {

enum class ProgressStyle { kAuto, kBar, kLines };

// A number of bytes for people, in decimal units: "950 B", "1.51 MB".
std::string format_bytes(double bytes);

class Progress {
  public:
    // Silent on all ranks but rank 0.
    Progress(ProgressStyle style, int rank, std::string label, std::uint64_t steps, std::uint64_t log_every);

    // Whether show() is wanted after this step: the same answer on every rank, so that the loss can be averaged first.
    bool wanted(std::uint64_t step) const { return step % every_ == 0 || step == steps_; }

    // `loss` in nats per byte; `bytes_sent` by this rank since the training began.
    void show(std::uint64_t step, double loss, std::uint64_t bytes_sent);

  private:
    bool bar_;
    bool silent_;
    std::string label_;
    std::uint64_t steps_;
    std::uint64_t every_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace lm

#endif // ONEBIT_EXAMPLES_LM_PROGRESS_HPP
