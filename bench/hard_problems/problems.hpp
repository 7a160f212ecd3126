// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

// Small problems on which optimizers go wrong: what is ill-conditioned, what is seen rarely, what fades.
namespace hard {

using Vector = std::vector<float>;

struct Loss {
    double value = 0;
    double accuracy = -1; ///< on held-out examples; negative if there are none
};

/// A function to minimise. Its tensors lie one after the other.
class Problem {
  public:
    virtual ~Problem() = default;
    virtual std::vector<std::size_t> sizes() const = 0;
    virtual Vector start() const = 0;
    virtual std::uint64_t steps() const = 0;
    /// The gradient at x on examples that `generator` draws. Called from several threads.
    virtual void gradient(std::span<const float> x, std::mt19937_64& generator, std::span<float> gradient) const = 0;
    virtual Loss loss(std::span<const float> x) const = 0;
};

/// "quadratic", "logistic" or "digits". The last one reads the file `digits`: lines of 64 pixels and a label, separated
/// by commas. Throws std::runtime_error.
std::unique_ptr<Problem> make_problem(const std::string& name, std::uint64_t seed, const std::string& digits);

} // namespace hard
