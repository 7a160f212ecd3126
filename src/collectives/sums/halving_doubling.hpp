// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/call/algorithm.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "numeric/arithmetic.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact average by recursive halving and doubling [Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005]. Sums are made
/// where the values lie. So on a GPU, as in [Awan et al., arXiv 1810.11112], it is quick even with an MPI that knows
/// nothing of GPUs.
///
/// The values are cut into p chunks. p is the largest power of two that is at most n, the number of ranks. Halving: a
/// rank swaps halves of its remaining chunks with a partner that is p/2 away, then p/4, ..., 1, and adds. In the end
/// rank q has the sum of chunk q. Doubling: the same way back, with sums. If n > p, the first 2 (n - p) ranks go in
/// pairs: the odd one hands its values to the even one and waits for the sum.
///
/// A rank of no pair sends 2 log2(p) messages, 2 (p-1)/p of the values. Every chunk is summed in one place and in one
/// order, so all ranks have the same bits. Works in `sum_`; `incoming_` has the values from a partner.
///
/// For few values only latency counts: there is doubling alone. A rank swaps all that it has added up so far with a
/// partner that is 1, 2, ..., p/2 away. It sends log2(p) messages, log2(p) times the values. Partners add the same two
/// numbers, and must round alike (all ranks must be in the same rounding mode).
///
/// An average is scaled before it is added up (Averaging), which costs nothing here.
///
/// In a tentative call nobody has looked at the values yet. A value that isn't finite shows in the sum, on every rank
/// alike. So does a rank that has no values to give (its input is NULL). Only then the ranks vote, before the output is
/// written.
class HalvingDoubling final : public Algorithm {
  public:
    enum class Way { kHalving, kDoublingAlone };

    /// The quicker way for `count` values on the host. Several times as many bytes must take less time than half of the
    /// messages, on any network on which nothing is compressed.
    static Way quicker_way(std::size_t count, std::size_t ranks);
    /// Up to so many values on the host, it is as quick as MPI's own sum, and checked calls need no agreement.
    static constexpr std::size_t kFew = std::size_t{1} << 16;
    /// Whether the host's values are so few that messages to every rank would take longer.
    static bool suits(std::size_t count, std::size_t ranks);

    /// Local. The tags from `tag` on are its own on this channel: two, and two for each halving.
    static Status create(Transport& transport, std::unique_ptr<Arithmetic> arithmetic, std::size_t count, Way way,
                         int tag, std::unique_ptr<Algorithm>* algorithm);

    std::span<const Stage> stages() const override { return stages_; }
    void set_operands(const Operands& operands) override { operands_ = operands; }
    std::size_t workspace_bytes() const override { return sum_.bytes() + incoming_.bytes(); }

  private:
    /// Some consecutive elements.
    struct Range {
        std::size_t begin = 0;
        std::size_t count = 0;
    };

    /// The ranks that take part, numbered anew: the first of each pair, and all that are in none.
    struct Participants {
        std::size_t pairs;
        std::size_t self; ///< this rank's number among them
        int real_rank(std::size_t q) const { return static_cast<int>(q < pairs ? 2 * q : q + pairs); }
    };

    HalvingDoubling(std::unique_ptr<Arithmetic> arithmetic, std::size_t count, int ranks);

    Status copy(Step* step);
    Status plan_pair(Transport& transport, Way way, int tag);
    Participants participants(const Transport& transport) const;
    Status plan_halving_and_doubling(Transport& transport, int tag);
    Status plan_doubling_alone(Transport& transport, int tag);
    /// Of chunks [first, end).
    Range range_of(std::size_t first, std::size_t end) const;
    Status plan_swap(Transport& transport, int peer, Range sent, Range received, float* to, int tag);
    void add_swap_stages(const char* name, Exchange& exchange);
    void add_sum_stage(Range range);
    Status look_at_sum(Step* step);
    Status await_votes(Step* step);
    Status divide(Step* step);

    std::unique_ptr<Arithmetic> arithmetic_;
    std::size_t count_;
    int ranks_;
    std::vector<Chunk> chunks_; ///< p of them
    Operands operands_;
    bool doubted_ = false; ///< the sum is doubted: the ranks vote
    AlignedBuffer<float> sum_;
    AlignedBuffer<float> incoming_;
    std::vector<std::unique_ptr<Exchange>> exchanges_;
    std::vector<Stage> stages_;
};

} // namespace onebit
