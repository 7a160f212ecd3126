// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/agreement.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/arithmetic.hpp"
#include "collectives/node_groups.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average: the transport's own dense sum, then a division by the number of ranks.
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
    Status divide(Step* step);

    std::unique_ptr<Arithmetic> arithmetic_;
    std::size_t count_;
    float share_;
    Operands operands_;
    std::unique_ptr<Sum> sum_;
    std::vector<Stage> stages_;
};

/// The same of few values, whose latency is all that counts: they have come with the agreement, so that the whole call
/// is one exchange. Added up in rank order.
class GatheredAllreduce final : public Algorithm {
  public:
    /// Whether this form is the quicker one. Every rank sends its values to every peer, so that the more peers there
    /// are the fewer values may be; but where the peers are on other nodes, one exchange less counts more.
    static bool suits(std::size_t count, const NodeGroups& groups) {
        const std::size_t most_bytes = groups.nodes == 1 ? 4096 : 16384;
        const std::size_t peers = std::max<std::size_t>(groups.node_of_rank.size() - 1, 1);
        return count <= most_bytes / sizeof(float) / peers;
    }

    GatheredAllreduce(Agreement& agreement, std::size_t count, int ranks);

    std::span<const Stage> stages() const override { return {&stage_, 1}; }
    void set_operands(const Operands& operands) override { operands_ = operands; }

  private:
    void add();

    Agreement& agreement_;
    std::size_t count_;
    std::size_t ranks_;
    Operands operands_;
    Stage stage_;
};

} // namespace onebit
