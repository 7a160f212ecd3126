// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The parts that runners of ranks share, whether ranks are threads or processes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

// Calls run(); ends the process with a message if run() takes too long.
void run_watched(const std::vector<RankLog*>& logs, const std::function<void()>& run);

// Runs n ranks as threads of this process, each in run_rank(its log), and then `afterwards`; reports what they logged.
using Logs = std::vector<std::unique_ptr<RankLog>>;
void run_as_threads(int n, const std::function<void(RankLog&)>& run_rank,
                    const std::function<void(Logs&)>& afterwards = {});

// What a bootstrap's allgather does: all = every rank's bytes, in rank order. Collective.
void gather_into(RankLog& log, const void* mine, void* all, std::size_t bytes);

// An exception from the body counts as a failure.
void run_body(const Body& body, onebit_comm_t comm, RankLog& log);

// Reports to Catch2: on the main thread.
void report(const RankLog& log);

} // namespace onebit_test
