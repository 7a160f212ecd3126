// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "collectives/call/error_state.hpp"
#include "collectives/forms/flat.hpp"
#include "core/aligned_buffer.hpp"

namespace onebit {

/// A compressed allreduce in which each rank carries one shard of a group's average through a flat exchange with the
/// ranks that carry the same shard of other groups'. The forms differ in how the average is made, and in how results
/// travel in a group.
class ShardedForm : public Algorithm {
  public:
    /// Of the shard, whose elements are counted from its own beginning.
    FlatAllreduce& flat() { return *flat_; }
    const FlatAllreduce& flat() const { return *flat_; }
    virtual Chunk shard() const = 0;
    /// The errors of averages inside groups, where these are rounded, too; the smallest groups first.
    virtual std::span<const LevelError> level_errors() const { return {}; }

    /// The shard's part, in the codec's memory, of a mask on the host.
    AlignedBuffer<std::uint32_t> shard_of(const AlignedBuffer<std::uint32_t>& mask) const;
    /// Replaces the mask of the whole buffer (empty: all elements take part), which is in the codec's memory.
    /// `of_shard`: shard_of's result for it.
    virtual void set_mask(AlignedBuffer<std::uint32_t> mask, AlignedBuffer<std::uint32_t> of_shard);
    bool masked() const { return mask_.size() > 0; }
    std::span<const std::uint32_t> mask() const { return mask_.view(); }

  protected:
    explicit ShardedForm(const Codec& codec) : codec_(codec) {}

    /// All ranks' status where the error of some shard has overflowed. `reset`: this error is zero now.
    static Status overflow(bool reset);

    const Codec& codec_;
    std::unique_ptr<FlatAllreduce> flat_;
    AlignedBuffer<std::uint32_t> mask_;
};

} // namespace onebit
