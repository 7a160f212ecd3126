// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "osu_report.hpp"

#include <onebit/onebit.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace onebit::bench {

namespace {

// A run may be watched through a pipe, or killed half-way: every line is flushed at once.
void print_line(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

std::string padded(const std::string& text, std::size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

} // namespace

double Overlap::percent(double call_us) const {
    return std::clamp(100 - 100 * (overall_us - compute_us) / call_us, 0.0, 100.0);
}

OsuReport::OsuReport(bool enabled, const OsuProgram& program, const OsuOptions& options)
    : program_(program), enabled_(enabled), json_(options.json), cuda_(options.cuda) {
    if (program.completion == Completion::kOverlapped) {
        add_overlaps(options);
    } else {
        add_latencies(options);
    }
}

void OsuReport::add(const char* heading, const char* key, double (*value)(const OsuRow&), int decimals, int width) {
    columns_.push_back({heading, key, width, decimals, value});
}

void OsuReport::add_latencies(const OsuOptions& options) {
    add("Avg Latency(us)", "avg_latency_us", [](const OsuRow& row) { return row.average_us; });
    if (options.full) {
        add("Min Latency(us)", "min_latency_us", [](const OsuRow& row) { return row.minimum_us; });
        add("Max Latency(us)", "max_latency_us", [](const OsuRow& row) { return row.maximum_us; });
        add(
            "Iterations", "iterations", [](const OsuRow& row) { return static_cast<double>(row.iterations); }, kWhole,
            12);
    }
    add_validation(options);
    if (!options.full) return;
    add("Dense(us)", "dense_us", [](const OsuRow& row) { return row.dense_us; });
    add("Median(us)", "median_us", [](const OsuRow& row) { return row.median_us; });
    add("DenseMedian(us)", "dense_median_us", [](const OsuRow& row) { return row.dense_median_us; });
    add("Speedup", "speedup", [](const OsuRow& row) { return row.dense_median_us / row.median_us; });
    add_wire_bytes();
    if (!program_.steps) {
        add(
            "RelError", "rel_error", [](const OsuRow& row) { return row.relative_error; }, 4);
    }
    if (options.bfloat16) {
        add("Bf16Median(us)", "bf16_median_us", [](const OsuRow& row) { return row.bfloat16_median_us; });
    }
    if (program_.shards) {
        add(
            "BusBW(GB/s)", "bus_bandwidth_gb_per_s", [](const OsuRow& row) { return row.bus_bandwidth; }, 4);
    }
}

void OsuReport::add_overlaps(const OsuOptions& options) {
    add("Overall(us)", "overall_us", [](const OsuRow& row) { return row.overlap.overall_us; });
    add("Compute(us)", "compute_us", [](const OsuRow& row) { return row.overlap.compute_us; });
    add("Pure Comm.(us)", "pure_comm_us", [](const OsuRow& row) { return row.average_us; });
    if (options.full) {
        add("Min Comm.(us)", "min_comm_us", [](const OsuRow& row) { return row.minimum_us; });
        add("Max Comm.(us)", "max_comm_us", [](const OsuRow& row) { return row.maximum_us; });
    }
    add("Overlap(%)", "overlap_percent", [](const OsuRow& row) { return row.overlap.percent(row.average_us); });
    add_validation(options);
    if (!options.full) return;
    add("Dense Overall(us)", "dense_overall_us", [](const OsuRow& row) { return row.dense_overlap.overall_us; });
    add("Dense Comm.(us)", "dense_comm_us", [](const OsuRow& row) { return row.dense_us; });
    add("Dense Overlap(%)", "dense_overlap_percent",
        [](const OsuRow& row) { return row.dense_overlap.percent(row.dense_us); });
    add_wire_bytes();
}

void OsuReport::add_validation(const OsuOptions& options) {
    if (options.validation) {
        add(
            "Validation", "valid", [](const OsuRow& row) { return row.valid ? 1.0 : 0.0; }, kPassOrFail);
    }
}

void OsuReport::add_wire_bytes() {
    add(
        "WireBytes", "wire_bytes", [](const OsuRow& row) { return static_cast<double>(row.wire_bytes); }, kWhole);
}

void OsuReport::header() const {
    if (!enabled_) return;
    const std::string title = std::string("OSU onebit") + (cuda_ ? "-CUDA " : " ") + program_.title +
                              " Latency Test v" + onebit_version() +
                              (program_.shards ? ", Size: bytes of the whole buffer" : "");
    if (json_) {
        comment(title);
        return;
    }
    print_line("\n# " + title);
    std::string line = "# Size    ";
    for (const Column& column : columns_) line += padded(column.heading, static_cast<std::size_t>(column.width));
    print_line(line);
}

void OsuReport::row(const OsuRow& row) const {
    if (!enabled_) return;
    if (json_) {
        nlohmann::ordered_json object = {{"size", row.bytes}};
        for (const Column& column : columns_) {
            const double value = column.value(row);
            if (column.decimals == kPassOrFail) {
                object[column.key] = value != 0;
            } else if (column.decimals == kWhole) {
                object[column.key] = static_cast<std::uint64_t>(value);
            } else {
                object[column.key] = value;
            }
        }
        print_line(object.dump());
        return;
    }
    std::string line = std::to_string(row.bytes);
    line += padded("", 10 - std::min<std::size_t>(line.size(), 10));
    for (const Column& column : columns_) line += padded(text_of(column, row), static_cast<std::size_t>(column.width));
    print_line(line);
}

std::string OsuReport::text_of(const Column& column, const OsuRow& row) const {
    const double value = column.value(row);
    if (column.decimals == kPassOrFail) return value != 0 ? "Pass" : "Fail";
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "%.*f", column.decimals, value);
    return text.data();
}

void OsuReport::comment(const std::string& text) const {
    if (!enabled_) return;
    print_line(json_ ? nlohmann::json{{"comment", text}}.dump() : "# " + text);
}

} // namespace onebit::bench
