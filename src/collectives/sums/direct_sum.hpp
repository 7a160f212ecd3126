// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/call/stages.hpp"
#include "collectives/sums/sum_levels.hpp"
#include "core/aligned_buffer.hpp"
#include "core/partition.hpp"
#include "numeric/arithmetic.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// The exact sum over the ranks, in place, for callers that can't block: MPI's own non-blocking sum took 1.4 to 1.9
/// times as long as its blocking one where this was measured. On each level every rank sends each other rank its part,
/// adds up its own part in rank order, and later sends the sum to everybody. It sends the bytes of a ring. The bits are
/// the same with every MPI and in any memory. It needs a buffer of the values' size.
class DirectSum {
  public:
    /// For these values only, which must outlive it. Local. The tags from `tag` on are its own on this channel, kTags
    /// of them.
    static Status create(Transport& transport, std::vector<SumLevel> levels, std::unique_ptr<Arithmetic> arithmetic,
                         float* values, std::size_t count, int tag, std::unique_ptr<DirectSum>* algorithm);
    static constexpr int kTags = 4;

    std::span<const Stage> stages() const { return stages_; }
    std::size_t workspace_bytes() const { return incoming_.bytes(); }

  private:
    DirectSum(std::vector<SumLevel> levels, std::unique_ptr<Arithmetic> arithmetic, float* values, std::size_t count);

    /// Of a level: the values that this member has afterwards.
    std::span<float> part_of(const SumLevel& level, std::size_t member) const;
    std::size_t most_incoming() const;
    Status plan_level(Transport& transport, std::size_t number, int tag);
    Status add(std::size_t level);

    std::vector<SumLevel> levels_;
    std::unique_ptr<Arithmetic> arithmetic_;
    float* values_;
    std::vector<Chunk> chunks_;
    AlignedBuffer<float> incoming_;                ///< of a level: the others' values of the own part
    std::vector<std::vector<float*>> to_be_added_; ///< by level and member
    std::vector<std::unique_ptr<Exchange>> up_;    ///< by level
    std::vector<std::unique_ptr<Exchange>> down_;  ///< likewise
    std::vector<Stage> stages_;
};

} // namespace onebit
