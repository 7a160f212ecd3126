// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "collectives/algorithm.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average: the transport's own dense sum, then a division by the number of ranks.
class DenseAllreduce final : public Algorithm {
  public:
    static Status create(Transport& transport, std::size_t count, unsigned threads,
                         std::unique_ptr<DenseAllreduce>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override { operands_ = operands; }

  private:
    DenseAllreduce(int ranks, std::size_t count, unsigned threads);

    Status start_sum(Step* step);
    Status finish_sum(Step* step);
    Status divide(Step* step);

    std::size_t count_;
    float share_;
    unsigned threads_;
    Operands operands_;
    std::unique_ptr<Sum> sum_;
    std::vector<Stage> stages_;
};

} // namespace onebit
