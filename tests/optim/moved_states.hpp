// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The data that tests compare when other ranks take over a training's state.
#pragma once

#include "support/directory.hpp"
#include "support/training.hpp"

namespace onebit_test {

// A directory of this process, for ranks that are its threads.
class OwnDirectory {
  public:
    OwnDirectory() {
        std::string name = (scratch_path() / "onebit-test-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~OwnDirectory() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    OwnDirectory(const OwnDirectory&) = delete;
    OwnDirectory& operator=(const OwnDirectory&) = delete;

    std::string prefix() const { return (path_ / "state").string(); }
    fs::path file(int rank, int ranks) const {
        return prefix() + "." + std::to_string(rank) + "-of-" + std::to_string(ranks) + ".onebit";
    }

  private:
    fs::path path_;
};

// The whole training, combined from all ranks.
struct Whole {
    std::vector<double> parameters;  // their mean
    std::vector<double> undelivered; // mean of the worker errors + sum of the server errors
    std::vector<double> magnitude;   // of the terms of that sum
    std::vector<double> largest;     // of the worker errors
    std::vector<float> first;        // rank 0's parameters
    onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
};

// Collective; every rank gets the same. `owners`: how many ranks (two levels: nodes) have an element's worker error.
inline Whole whole_of(Training& training, int owners, RankLog& log) {
    Whole whole;
    const OptimizerErrors errors = training.errors();
    const auto parameters = log.gather_floats(training.parameters());
    const auto workers = log.gather_floats(errors.worker), servers = log.gather_floats(errors.server);
    const std::size_t count = training.count();
    for (auto* each : {&whole.parameters, &whole.undelivered, &whole.magnitude, &whole.largest})
        each->assign(count, 0.0);
    for (std::size_t r = 0; r < workers.size(); ++r) {
        for (std::size_t i = 0; i < count; ++i) {
            whole.parameters[i] += static_cast<double>(parameters[r][i]) / log.size();
            whole.undelivered[i] += static_cast<double>(workers[r][i]) / owners + servers[r][i];
            whole.magnitude[i] += std::fabs(workers[r][i]) + std::fabs(servers[r][i]);
            whole.largest[i] = std::max(whole.largest[i], std::fabs(static_cast<double>(workers[r][i])));
        }
    }
    whole.first = parameters.front();
    whole.info = training.info();
    return whole;
}

} // namespace onebit_test
