// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/communicator/communicator.hpp"
#include "collectives/sums/direct_sum.hpp"
#include "core/aligned_buffer.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// A few numbers that a step adds up over the ranks. They are in the host's memory wherever the gradients lie. The
/// order of the ranks is the order of addition, so the sums are the same on every rank.
class RankSum {
  public:
    /// `what`: the sum's name in messages; a literal. Collective; blocks.
    static Status create(Communicator& communicator, std::size_t count, const char* what,
                         std::unique_ptr<RankSum>* sum);
    ~RankSum();
    RankSum(const RankSum&) = delete;
    RankSum& operator=(const RankSum&) = delete;

    /// This rank's own numbers, and after run() the sums.
    std::span<float> values() { return {values_.data(), values_.size()}; }
    /// Collective; blocks. After a failure every call fails.
    Status run();
    /// Another exchange has broken the optimizer: no rank waits for this sum any more.
    void give_up(const Status& why);
    const Status& broken() const { return broken_; }
    std::uint64_t bytes_sent() const { return channel_->bytes_sent(); }
    std::size_t bytes() const { return values_.bytes() + sum_->workspace_bytes(); }

  private:
    RankSum(std::unique_ptr<Transport> channel, std::size_t count, const char* what, Patience patience);
    Status add_up();

    std::unique_ptr<Transport> channel_;
    const char* what_;
    Patience patience_;
    AlignedBuffer<float> values_;
    std::unique_ptr<DirectSum> sum_; ///< of values_
    Status broken_;
};

} // namespace onebit
