// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "progress.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace lm {
namespace {

constexpr int kBarWidth = 24;
constexpr std::uint64_t kBarUpdates = 200; // over the whole training

// Open MPI gives its processes a terminal of its own, wherever mpirun's output goes: isatty says nothing there.
bool is_terminal() {
    return isatty(STDOUT_FILENO) && !std::getenv("OMPI_COMM_WORLD_RANK");
}

// All ranks take rank 0's answer: their outputs may differ, and the style decides when the ranks average their losses.
bool use_bar(ProgressStyle style) {
    int bar = style == ProgressStyle::kBar || (style == ProgressStyle::kAuto && is_terminal());
    MPI_Bcast(&bar, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return bar;
}

} // namespace

std::string format_bytes(double bytes) {
    const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
    char text[32];
    std::snprintf(text, sizeof text, "%.*f %s",
                  unit == 0 || bytes >= 100 ? 0
                  : bytes >= 10             ? 1
                                            : 2,
                  bytes, units[unit]);
    return text;
}

Progress::Progress(ProgressStyle style, int rank, std::string label, std::uint64_t steps, std::uint64_t log_every)
    : bar_(use_bar(style)),
      silent_(rank != 0),
      label_(std::move(label)),
      steps_(steps),
      every_(bar_ ? std::max<std::uint64_t>(1, steps / kBarUpdates) : log_every) {}

void Progress::show(std::uint64_t step, double loss, std::uint64_t bytes_sent) {
    if (silent_) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
    const double steps_per_second = double(step) / elapsed.count();
    const std::string sent =
        format_bytes(double(bytes_sent)) + " sent, " + format_bytes(double(bytes_sent) / elapsed.count()) + "/s";
    if (bar_) {
        const int filled = static_cast<int>(kBarWidth * step / steps_);
        std::printf("\r%-10s [%.*s%.*s] %llu/%llu  loss %.3f  %s  %.0f steps/s\033[K%s", label_.c_str(), filled,
                    "########################", kBarWidth - filled, "........................",
                    static_cast<unsigned long long>(step), static_cast<unsigned long long>(steps_), loss, sent.c_str(),
                    steps_per_second, step == steps_ ? "\n" : "");
    } else {
        std::printf("%-10s step %6llu of %llu  loss %.3f  %s  %.0f steps/s\n", label_.c_str(),
                    static_cast<unsigned long long>(step), static_cast<unsigned long long>(steps_), loss, sent.c_str(),
                    steps_per_second);
    }
    std::fflush(stdout);
}

} // namespace lm
