// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "osu_operation.hpp"
#include "osu_options.hpp"
#include "osu_report.hpp"
#include "osu_support.hpp"

namespace onebit::bench {

// Computes with calls of row's size in flight, for as long as row says that a call takes. Fills in row's overlaps.
// Collective; complete on rank 0.
void measure_overlap(const Ranks& ranks, const OsuOptions& options, Operation& operation, OsuRow& row);

} // namespace onebit::bench
