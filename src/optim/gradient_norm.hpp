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

/// The L2 norm of the gradients' sum over the ranks, for clipping: exact where that sum is at hand, otherwise estimated
/// from a sketch that is summed in its place (docs/OPTIMIZERS.md, "Clipping"). Either is the same on every rank and
/// with any number of threads, for pieces of a fixed length are added in a fixed order, by the host wherever they lie.
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
    /// An estimate of the sum of squares of what all ranks have sketched, added up. Collective; blocks. Where it fails,
    /// it always will from then on.
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
