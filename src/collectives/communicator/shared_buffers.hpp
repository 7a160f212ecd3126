// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/status.hpp"
#include "transport/mapped_memory.hpp"

namespace onebit {

class Communicator;

/// A program's own memory for values and results (onebit_mem_alloc): a piece for each rank of a node, which all these
/// ranks see; or memory of this rank alone, where they can't see it.
class SharedBuffer {
  public:
    /// Of this rank alone.
    explicit SharedBuffer(std::size_t bytes) : alone_(bytes) {}
    /// By place in the node.
    SharedBuffer(std::vector<std::unique_ptr<MappedMemory>> pieces, std::size_t place)
        : pieces_(std::move(pieces)), place_(place) {}

    std::byte* own() { return pieces_.empty() ? alone_.data() : pieces_[place_]->data(); }
    /// `bytes` at `offset` of a piece that all ranks see; NULL where the piece is too short.
    std::byte* at(std::size_t place, std::uint64_t offset, std::size_t bytes) const {
        const MappedMemory& piece = *pieces_[place];
        const bool has = bytes <= piece.bytes() && offset <= piece.bytes() - bytes;
        return has ? piece.data() + offset : nullptr;
    }

  private:
    AlignedBuffer<std::byte> alone_;
    std::vector<std::unique_ptr<MappedMemory>> pieces_;
    std::size_t place_ = 0;
};

/// The buffers of a communicator that a node's ranks share. From them a call finds out whether all ranks see each
/// other's values. May be used by several threads. A buffer belongs to the code that frees it, and lasts until no call
/// uses it any more.
class SharedBuffers {
  public:
    /// A place that means the same to all ranks of the node.
    struct Place {
        std::uint64_t buffer = 0; ///< its number; 0: none
        std::uint64_t offset = 0; ///< in bytes
    };

    /// Collective; blocks. `own`: what is already wrong on this rank, if anything. `bytes` may differ between ranks.
    static Status allocate(Communicator& communicator, const Status& own, std::size_t bytes,
                           std::shared_ptr<SharedBuffer>* buffer);

    /// Where this rank's `bytes` at `begin` lie. Local.
    Place find(const void* begin, std::size_t bytes) const;
    /// The buffer of this number; NULL where this rank has freed it. Local.
    std::shared_ptr<SharedBuffer> get(std::uint64_t number) const;

  private:
    struct Entry {
        std::uintptr_t begin = 0; ///< this rank's piece
        std::size_t bytes = 0;
        std::weak_ptr<SharedBuffer> buffer;
    };
    std::uint64_t next_number() { return ++last_number_; }
    void add(std::uint64_t number, const std::shared_ptr<SharedBuffer>& buffer, std::size_t bytes);

    mutable std::mutex mutex_;
    std::map<std::uint64_t, Entry> entries_;
    std::uint64_t last_number_ = 0;
};

} // namespace onebit
