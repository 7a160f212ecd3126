// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/operation/collective.hpp"
#include "core/aligned_buffer.hpp"
#include "core/status.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Blocks of bytes in the host's memory, one from each rank, for all ranks to get. They travel in slices. So the bytes
/// under way at a time don't grow with the blocks, and a peer counts as late by its bytes of a slice.
class BlockGather {
  public:
    /// Allocates all that run() needs. Local. `sizes`: of the ranks' blocks, the same on every rank.
    static Status create(Collective& collective, std::span<const std::size_t> sizes,
                         std::unique_ptr<BlockGather>* made);
    ~BlockGather();
    BlockGather(const BlockGather&) = delete;
    BlockGather& operator=(const BlockGather&) = delete;

    /// This rank's block, which the caller fills; after run() every rank's.
    std::span<std::byte> block(std::size_t rank);
    /// Collective, after all ranks have created theirs; blocks. If it fails, the handle is broken.
    Status run();

  private:
    explicit BlockGather(Collective& collective) : collective_(collective) {}
    Status run_slice(std::size_t begin);

    Collective& collective_;
    std::vector<std::size_t> offsets_; ///< by rank, and the end
    std::size_t most_ = 0;             ///< bytes of the largest block
    std::size_t slice_ = 0;            ///< bytes of each rank under way
    AlignedBuffer<std::byte> blocks_;
    AlignedBuffer<std::byte> slices_; ///< by rank
    std::unique_ptr<Exchange> exchange_;
};

} // namespace onebit
