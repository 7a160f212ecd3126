// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/arithmetic.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average by recursive halving and doubling [Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005], with sums
/// where the values lie: on a GPU, as [Awan et al., arXiv 1810.11112] do, MPI need know nothing of GPUs to be quick.
///
/// The values are cut into p chunks, p the largest power of two that is no more than the n ranks. Halving: with a
/// partner that is p/2 away, then p/4, ..., 1, a rank swaps halves of the chunks it still looks after, and adds; in the
/// end rank q has the sum of chunk q. Doubling: the same way back, with sums. Of n > p ranks the first 2 (n - p) go in
/// pairs: the odd one hands its values to the even one and waits for the sum.
///
/// 2 log2(p) messages, 2 (p-1)/p of the values, for a rank of no pair. Every chunk is summed in one place and in one
/// order, so all ranks have the same bits. Works in `sum_`; `incoming_` has what a partner has sent.
class HalvingDoubling final : public Algorithm {
  public:
    /// Local. The tags from `tag` on are its own on this channel, two and two for each halving.
    static Status create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int tag,
                         std::unique_ptr<Algorithm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override { operands_ = operands; }
    std::size_t workspace_bytes() const override { return sum_.bytes() + incoming_.bytes(); }

  private:
    /// Some consecutive elements.
    struct Range {
        std::size_t begin = 0;
        std::size_t count = 0;
    };

    HalvingDoubling(std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int ranks);

    Status plan_pair(Transport& transport, int tag);
    Status plan_halving_and_doubling(Transport& transport, int tag);
    /// Of chunks [first, end).
    Range range_of(std::size_t first, std::size_t end) const;
    Status plan_swap(Transport& transport, int peer, Range sent, Range received, float* to, int tag);
    void add_swap_stages(const char* name, Exchange& exchange);
    void add_sum_stage(Range range);

    std::unique_ptr<Arithmetic> arithmetic_;
    std::size_t count_;
    int ranks_;
    std::vector<Chunk> chunks_; ///< p of them
    Operands operands_;
    AlignedBuffer<float> sum_;
    AlignedBuffer<float> incoming_;
    std::vector<std::unique_ptr<Exchange>> exchanges_;
    std::vector<Stage> stages_;
};

} // namespace onebit
