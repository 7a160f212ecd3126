// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "numeric/arithmetic.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average: the transport's own dense sum of scaled values (Averaging). For a power of two ranks no other
/// step is needed.
class DenseAllreduce final : public Algorithm {
  public:
    static Status create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count,
                         std::unique_ptr<Algorithm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override { operands_ = operands; }

  private:
    DenseAllreduce(std::unique_ptr<Arithmetic> arithmetic, int ranks, std::size_t count);

    Status start_sum(Step* step);
    Status finish_sum(Step* step);
    Status scale(Step* step);
    bool averages() const { return !operands_.sum_only && averaging_.before != 1; }

    std::unique_ptr<Arithmetic> arithmetic_;
    std::size_t count_;
    Averaging averaging_;
    Operands operands_;
    std::unique_ptr<Sum> sum_;
    std::vector<Stage> stages_;
};

} // namespace onebit
