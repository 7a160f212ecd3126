// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What the optimizer tests share: an optimizer over tensors of given sizes beside the oracle that runs on their
// concatenation.
#pragma once

#include <algorithm>
#include <functional>

#include "support/handles.hpp"

namespace onebit_test {

using Sizes = std::vector<std::size_t>;
using Gradient = std::function<std::vector<float>(int rank, std::uint64_t step)>; // all tensors, one after another

inline std::size_t total(const Sizes& sizes) {
    std::size_t sum = 0;
    for (std::size_t size : sizes) sum += size;
    return sum;
}

inline onebit_optimizer_config_t optimizer_config(onebit_optimizer_kind_t kind, double lr = 0.01) {
    onebit_optimizer_config_t config = ONEBIT_OPTIMIZER_CONFIG_INIT(kind, lr);
    config.freeze_step = ONEBIT_FREEZE_NEVER;
    return config;
}

inline oracle::AdamConfig oracle_config(const onebit_optimizer_config_t& config) {
    return {config.lr, config.beta1, config.beta2, config.eps, config.weight_decay, config.bias_correction != 0};
}

inline std::vector<float> initial_parameters(std::size_t count) {
    return make_data(Kind::gaussian, count, 1000, 0, 0);
}

inline oracle::PerRank gradients_of_all(const Gradient& gradient, int ranks, std::uint64_t step) {
    oracle::PerRank all;
    for (int r = 0; r < ranks; ++r) {
        const std::vector<float> mine = gradient(r, step);
        all.emplace_back(mine.begin(), mine.end());
    }
    return all;
}

// The tensors and the optimizer of one rank.
class Training {
  public:
    Training(onebit_comm_t comm, const onebit_optimizer_config_t& config, const Sizes& sizes, RankLog& log)
        : log_(log) {
        const std::vector<float> start = initial_parameters(total(sizes));
        auto from = start.begin();
        for (std::size_t size : sizes) {
            parameters_.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
            gradients_.emplace_back(size, 0.0f);
            from += static_cast<std::ptrdiff_t>(size);
        }
        std::vector<onebit_tensor_t> tensors; // read, not kept
        for (std::size_t k = 0; k < sizes.size(); ++k)
            tensors.push_back(ONEBIT_TENSOR_INIT(parameters_[k].data(), gradients_[k].data(), sizes[k]));
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_create(comm, &config, tensors.data(), tensors.size(), &handle_));
    }
    ~Training() { ONEBIT_EXPECT_OK(log_, onebit_optimizer_destroy(handle_)); }
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

    onebit_optimizer_t get() const { return handle_; }
    void set_gradients(const std::vector<float>& flat) {
        auto from = flat.begin();
        for (std::vector<float>& gradient : gradients_) {
            std::copy_n(from, gradient.size(), gradient.begin());
            from += static_cast<std::ptrdiff_t>(gradient.size());
        }
    }
    void step(const std::vector<float>& flat) {
        set_gradients(flat);
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_step(handle_));
    }
    std::vector<float> parameters() const {
        std::vector<float> flat;
        for (const std::vector<float>& part : parameters_) flat.insert(flat.end(), part.begin(), part.end());
        return flat;
    }
    onebit_optimizer_info_t info() {
        onebit_optimizer_info_t info = ONEBIT_OPTIMIZER_INFO_INIT;
        ONEBIT_EXPECT_OK(log_, onebit_optimizer_get_info(handle_, &info));
        return info;
    }

  private:
    RankLog& log_;
    std::vector<std::vector<float>> parameters_, gradients_;
    onebit_optimizer_t handle_ = nullptr;
};

// Compares parameters with an oracle run beside. The error allowed grows with the way each parameter has come: an
// update is as exact as a few float roundings of its factors, however large 1 / sqrt(v) makes it.
class ParameterCheck {
  public:
    ParameterCheck(const oracle::Vector& start, double lr) : last_(start), path_(start.size(), 0.0), lr_(lr) {}

    // Elements whose sign margin (see the oracle) is below `margin` are left out; returns how many.
    std::size_t check(RankLog& log, const std::vector<float>& actual, const oracle::Vector& expected,
                      const oracle::Vector& sign_margin, double margin, int line) {
        ++steps_;
        std::size_t left_out = 0, wrong = 0, first = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            path_[i] += std::fabs(expected[i] - last_[i]);
            const double tolerance = relative_ * path_[i] + steps_ * (1e-5 * lr_ + 2.5e-7 * std::fabs(expected[i]));
            if (!sign_margin.empty() && sign_margin[i] < margin) {
                ++left_out;
            } else if (!(std::fabs(actual[i] - expected[i]) <= tolerance)) {
                if (wrong++ == 0) first = i;
            }
        }
        last_ = expected;
        std::ostringstream text;
        text.precision(9);
        text << "step " << steps_ << ": " << wrong << " of " << expected.size() << " parameters are wrong";
        if (wrong != 0) text << "; the first is " << first << ": " << actual[first] << ", not " << expected[first];
        log.expect(wrong == 0, text.str(), __FILE__, line);
        log.expect(log.same_on_all(actual.data(), actual.size() * sizeof(float)), "parameters equal on all ranks",
                   __FILE__, line);
        return left_out;
    }
    void relative_tolerance(double value) { relative_ = value; }

  private:
    oracle::Vector last_, path_;
    double lr_;
    double relative_ = 2e-4;
    int steps_ = 0;
};

} // namespace onebit_test
