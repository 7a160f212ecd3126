// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transport/transport.hpp"

namespace onebit {

/// Counters by which the ranks of a node tell each other how far they have come, in all calls together. They lie in
/// each rank's part of the memory that the ranks share. They are zero at first, and only their rank writes them.
class SharedCounters {
  public:
    /// What they take of each rank's part: a cache line each.
    static constexpr std::size_t bytes(std::size_t counters) { return counters * kCacheLine; }

    /// `offset`: where in each rank's part they begin, a multiple of 64.
    SharedCounters(SharedMemory& memory, std::size_t rank, std::size_t ranks, std::size_t offset = 0)
        : memory_(memory), rank_(rank), ranks_(ranks), offset_(offset) {}

    /// A rank that has seen the number also sees all that this rank wrote before telling it.
    void tell(std::size_t which, std::uint64_t number) const {
        counter(rank_, which).store(number, std::memory_order_release);
    }
    bool reached(std::size_t rank, std::size_t which, std::uint64_t number) const {
        return counter(rank, which).load(std::memory_order_acquire) >= number;
    }
    bool all_reached(std::size_t which, std::uint64_t number) const {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (!reached(rank, which, number)) return false;
        }
        return true;
    }
    /// Whether the slowest rank has come farther than *reached. Sets *reached to that rank's counter. So no rank gives
    /// up neighbours that are at work.
    bool last_went_on(std::size_t which, std::uint64_t* reached) const {
        std::uint64_t least = UINT64_MAX;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            least = std::min(least, counter(rank, which).load(std::memory_order_acquire));
        }
        return std::exchange(*reached, least) != least;
    }
    bool any_reached(std::size_t which, std::uint64_t number) const {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (reached(rank, which, number)) return true;
        }
        return false;
    }

  private:
    static constexpr std::size_t kCacheLine = 64;

    std::atomic_ref<std::uint64_t> counter(std::size_t rank, std::size_t which) const {
        std::byte* const part = memory_.of(static_cast<int>(rank)) + offset_;
        return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(part + which * kCacheLine));
    }

    SharedMemory& memory_;
    std::size_t rank_;
    std::size_t ranks_;
    std::size_t offset_;
};

} // namespace onebit
