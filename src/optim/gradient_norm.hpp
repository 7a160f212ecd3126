// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"
#include "optim/rank_sum.hpp"

namespace onebit {

/// The L2 norm of the gradients' sum over the ranks, for clipping: exact where this sum exists, otherwise estimated
/// from a sketch that is summed instead (docs/OPTIMIZERS.md, "Clipping"). Either is the same on every rank and with any
/// number of threads: the host adds pieces of a fixed length in a fixed order, wherever the pieces lie.
class GradientNorm {
  public:
    /// For layouts of at most `most_segments`. Collective; blocks.
    static Status create(Communicator& communicator, std::size_t most_segments, std::unique_ptr<GradientNorm>* norm);

    /// The sum of squares of a bucket's sum.
    double sum_squares(const Bucket& bucket);

    /// Forgets what was sketched.
    void restart() { std::ranges::fill(total_->values(), 0.0F); }
    /// Adds a sketch of this rank's own gradients.
    void sketch(const Bucket& bucket);
    /// Estimates the sum of squares of the sum of all that the ranks have sketched. Collective; blocks. After a failure
    /// every call fails.
    Status sum_squares_over_ranks(double* squares);
    void give_up(const Status& why) { total_->give_up(why); }
    const Status& broken() const { return total_->broken(); }
    std::uint64_t bytes_sent() const { return total_->bytes_sent(); }

    std::size_t bytes() const { return squares_.size() * sizeof(double) + sketches_.bytes() + total_->bytes(); }

  private:
    GradientNorm(std::size_t most_segments, std::unique_ptr<RankSum> total);

    std::vector<double> squares_;   ///< by segment
    AlignedBuffer<float> sketches_; ///< of one bucket
    std::unique_ptr<RankSum> total_;
};

} // namespace onebit
