// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <onebit/onebit.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/config.hpp"

namespace onebit {

/// The forms that AUTO chooses from. FLAT is not among them: PIPELINED is the same, as quick or quicker.
inline constexpr std::array kChosenForms = {ONEBIT_ALGORITHM_DENSE, ONEBIT_ALGORITHM_PIPELINED,
                                            ONEBIT_ALGORITHM_TWO_LEVEL, ONEBIT_ALGORITHM_BRUCK, ONEBIT_ALGORITHM_RING};

/// The time of a call in each form, by the number of elements: rows, estimated or measured, and straight lines between
/// them, because a transfer has a latency and a rate.
class Costs {
  public:
    static constexpr double kNever = std::numeric_limits<double>::infinity(); ///< a form that is impossible

    struct Row {
        std::uint64_t count = 0;
        std::array<double, kAlgorithms> microseconds{}; ///< by onebit_algorithm_t

        Row() { microseconds.fill(kNever); }
    };

    /// At least one row, with growing counts; the same forms in all, DENSE among them.
    explicit Costs(std::vector<Row> rows) : rows_(std::move(rows)) {}

    double microseconds(onebit_algorithm_t form, std::uint64_t count) const;
    /// The quickest of these forms; of equally quick ones, the first.
    onebit_algorithm_t quickest(std::uint64_t count, std::span<const onebit_algorithm_t> forms) const;

    const std::vector<Row>& rows() const { return rows_; }

  private:
    std::vector<Row> rows_;
};

/// The costs that a communicator goes by for one codec and values in one kind of memory, and how they are known; the
/// same on every rank.
class KnownCosts {
  public:
    /// An estimate from constants, which no measurement will replace.
    explicit KnownCosts(Costs estimate) : lasting_(std::move(estimate)), costs_(lasting_) {}

    const Costs& costs() const { return costs_; }
    std::string source() const { return source_ + objection_; }
    bool is_estimate() const { return source_ == kEstimated; }
    /// Costs that no measurement changes: the estimate, or a table's. A choice by these costs is the same in each run.
    const Costs& lasting() const { return lasting_; }
    const char* lasting_source() const { return tuned_ ? "tuned" : "estimated"; }
    /// Takes a table's costs.
    void tune(Costs costs);
    /// `known_to`: elements up to which nothing is left to be measured.
    void set(Costs costs, std::string source, std::uint64_t known_to = UINT64_MAX);
    /// Whether the costs of so many elements are only estimated, or guessed from fewer elements, and might be measured.
    bool wants_measuring(std::uint64_t count) const { return count > known_to_; }
    /// The costs are only estimated, and may be measured.
    void measure_later() { known_to_ = 0; }
    /// The costs won't be measured.
    void keep_estimate(const std::string& why);
    /// Adds to source() why a table's costs are not taken.
    void object(const std::string& why) { objection_ += ", for " + why; }

  private:
    Costs lasting_;
    bool tuned_ = false;
    Costs costs_;
    static constexpr const char* kEstimated = "estimated";
    std::string source_ = kEstimated;
    std::string objection_; ///< why better costs were not taken
    std::uint64_t known_to_ = UINT64_MAX;
};

} // namespace onebit
