// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The table that the OSU-style benchmarks print. OMB's layout, so that what reads osu_allreduce reads this: lines that
// are no data begin with '#', the size stands left in 10 characters, every further column right in 18 (the iterations
// in 12). OMB's columns come first and in OMB's order; onebit's own, with --full, follow them. Those that one benchmark
// alone has come last.
#pragma once

#include <onebit/onebit.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "osu_options.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

struct OsuRow {
    std::size_t bytes = 0;
    std::size_t iterations = 0;
    double average_us = 0; // of the compressed call: over iterations, then over ranks
    double minimum_us = 0; // of the ranks' averages, as OMB has them
    double maximum_us = 0;
    bool valid = true;
    // The rest is printed with --full only. Medians are of each iteration's slowest rank.
    double dense_us = 0;
    double median_us = 0;
    double dense_median_us = 0;
    double bfloat16_median_us = 0; // with --bf16
    std::uint64_t wire_bytes = 0;
    double relative_error = 0;
    double bus_bandwidth = 0; // in GB/s, of the compressed call; where ranks have shards
};

class OsuReport {
  public:
    // Prints nothing unless `enabled`: only one rank talks.
    OsuReport(bool enabled, const OsuProgram& program, const OsuOptions& options)
        : program_(program),
          enabled_(enabled),
          full_(options.full),
          validation_(options.validation),
          bfloat16_(options.full && options.bfloat16),
          cuda_(options.cuda) {}

    void header() const {
        if (!enabled_) return;
        std::printf("\n# OSU onebit%s %s Latency Test v%s%s\n", cuda_ ? "-CUDA" : "", program_.title, onebit_version(),
                    program_.shards ? ", Size: bytes of the whole buffer" : "");
        std::printf("%-10s%18s", "# Size", "Avg Latency(us)");
        if (full_) std::printf("%18s%18s%12s", "Min Latency(us)", "Max Latency(us)", "Iterations");
        if (validation_) std::printf("%18s", "Validation");
        if (full_) {
            std::printf("%18s%18s%18s%18s%18s%18s", "Dense(us)", "Median(us)", "DenseMedian(us)", "Speedup",
                        "WireBytes", "RelError");
        }
        if (bfloat16_) std::printf("%18s", "Bf16Median(us)");
        if (full_ && program_.shards) std::printf("%18s", "BusBW(GB/s)");
        end_line();
    }

    void row(const OsuRow& row) const {
        if (!enabled_) return;
        std::printf("%-10zu%18.2f", row.bytes, row.average_us);
        if (full_) std::printf("%18.2f%18.2f%12zu", row.minimum_us, row.maximum_us, row.iterations);
        if (validation_) std::printf("%18s", row.valid ? "Pass" : "Fail");
        if (full_) {
            std::printf("%18.2f%18.2f%18.2f%18.2f%18llu%18.4f", row.dense_us, row.median_us, row.dense_median_us,
                        row.dense_median_us / row.median_us, static_cast<unsigned long long>(row.wire_bytes),
                        row.relative_error);
        }
        if (bfloat16_) std::printf("%18.2f", row.bfloat16_median_us);
        if (full_ && program_.shards) std::printf("%18.4f", row.bus_bandwidth);
        end_line();
    }

    // A line that readers of the table skip.
    void comment(const std::string& text) const {
        if (!enabled_) return;
        std::printf("# %s", text.c_str());
        end_line();
    }

  private:
    // A run may be watched through a pipe, or killed half-way: every line is out at once.
    static void end_line() {
        std::printf("\n");
        std::fflush(stdout);
    }

    const OsuProgram& program_;
    bool enabled_;
    bool full_;
    bool validation_;
    bool bfloat16_;
    bool cuda_;
};

} // namespace onebit::bench
