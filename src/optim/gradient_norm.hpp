// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/direct_sum.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/bucket.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The L2 norm of the gradients' sum over the ranks, for clipping: exact where that sum is at hand, otherwise estimated
/// from a sketch that is summed in its place (docs/OPTIMIZERS.md, "Clipping"). Either is the same on every rank and
/// with any number of threads, for pieces of a fixed length are added in a fixed order, by the host wherever they lie.
class GradientNorm {
  public:
    /// For layouts of at most `most_segments`. Collective; blocks.
    static Status create(Communicator& communicator, std::size_t most_segments, std::unique_ptr<GradientNorm>* norm);
    ~GradientNorm();
    GradientNorm(const GradientNorm&) = delete;
    GradientNorm& operator=(const GradientNorm&) = delete;

    /// The sum of squares of a bucket's sum.
    double sum_squares(const Bucket& bucket);

    /// Forgets what was sketched.
    void restart() { total_.fill_zero(); }
    /// Adds a sketch of this rank's own gradients.
    void sketch(const Bucket& bucket);
    /// An estimate of the sum of squares of what all ranks have sketched, added up. Collective; blocks. Where it fails,
    /// it always will from then on.
    Status sum_squares_over_ranks(double* squares);
    const Status& broken() const { return broken_; }
    std::uint64_t bytes_sent() const { return channel_->bytes_sent(); }

    std::size_t bytes() const {
        return squares_.size() * sizeof(double) + sketches_.bytes() + total_.bytes() + sum_->workspace_bytes();
    }

  private:
    GradientNorm(std::unique_ptr<Transport> channel, std::size_t most_segments, Patience patience);
    Status sum_over_ranks();

    std::unique_ptr<Transport> channel_;
    Patience patience_;
    std::vector<double> squares_;   ///< by segment
    AlignedBuffer<float> sketches_; ///< of one bucket
    AlignedBuffer<float> total_;
    std::unique_ptr<DirectSum> sum_; ///< of total_
    Status broken_;
};

} // namespace onebit
