// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The table that the OSU-style benchmarks print. The layout is OMB's, so that programs that read osu_allreduce's output
// can read this table: lines that are no data begin with '#', the size stands left in 10 characters, every further
// column right in 18 (the iterations in 12). OMB's columns come first, in OMB's order; onebit's own columns, with
// --full, follow. Columns of one benchmark alone come last. osu_onebit_iallreduce has OMB's columns without --full.
//
// With --json each line is an object instead: {"size": 64, ...} for a row, {"comment": "..."} for other lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "osu_options.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// Means over iterations, then over ranks.
struct Overlap {
    double overall_us = 0; // of computing with a call in flight
    double compute_us = 0; // of the same computing alone

    // As in OMB: the share of a call's time that passes during the computing.
    double percent(double call_us) const;
};

struct OsuRow {
    std::size_t bytes = 0;
    std::size_t iterations = 0;
    double average_us = 0; // of the compressed call: over iterations, then over ranks
    double minimum_us = 0; // of the ranks' averages, as in OMB
    double maximum_us = 0;
    bool valid = true;
    Overlap overlap; // if the program has one; average_us and dense_us are of calls that are waited for at once
    Overlap dense_overlap;
    // The rest is printed with --full only. Medians are of each iteration's slowest rank.
    double dense_us = 0;
    double median_us = 0;
    double dense_median_us = 0;
    double bfloat16_median_us = 0; // with --bf16
    std::uint64_t wire_bytes = 0;
    double relative_error = 0;
    double bus_bandwidth = 0; // in GB/s, of the compressed call; if ranks have shards
};

class OsuReport {
  public:
    // Prints nothing unless `enabled`: only one rank prints.
    OsuReport(bool enabled, const OsuProgram& program, const OsuOptions& options);

    void header() const;
    void row(const OsuRow& row) const;
    // A line that readers of the table skip.
    void comment(const std::string& text) const;

  private:
    struct Column {
        const char* heading;
        const char* key; // with --json
        int width;
        int decimals; // kWhole, kPassOrFail
        double (*value)(const OsuRow&);
    };
    static constexpr int kWhole = 0;
    static constexpr int kPassOrFail = -1;

    void add(const char* heading, const char* key, double (*value)(const OsuRow&), int decimals = 2, int width = 18);
    void add_latencies(const OsuOptions& options);
    void add_overlaps(const OsuOptions& options);
    void add_validation(const OsuOptions& options);
    void add_wire_bytes();
    std::string text_of(const Column& column, const OsuRow& row) const;

    const OsuProgram& program_;
    bool enabled_;
    bool json_;
    bool cuda_;
    std::vector<Column> columns_; // after the size
};

} // namespace onebit::bench
