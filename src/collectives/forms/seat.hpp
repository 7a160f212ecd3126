// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/communicator/node_groups.hpp"
#include "core/partition.hpp"

namespace onebit {

/// Where a rank stands in compressed exchanges on two levels: which shard's error it has, and which chunk it serves. Of
/// flat exchanges all ranks have the same one.
struct Seat {
    std::uint32_t places = 0; ///< ranks of each node; 0: exchanges are flat
    std::uint32_t place = 0;  ///< in the node: the number of the shard
    std::uint32_t node = 0;   ///< the rank's number among those in its place: that of its chunk of the shard

    bool operator==(const Seat&) const = default;
    bool on_two_levels() const { return places > 0; }

    /// Of `count` elements over so many ranks: the part that the rank's worker error is of, and that which it serves.
    Chunk shard(std::size_t count) const { return partition(count, places)[place]; }
    Chunk served(std::size_t count, std::size_t ranks) const {
        const Chunk whole = shard(count);
        Chunk part = partition(whole.count, ranks / places)[node];
        part.begin += whole.begin;
        return part;
    }

    /// As one word of a file.
    std::uint32_t word() const { return places << kNodeBits | (place + node * places); }
    /// False where no rank of so many stands there.
    static bool from_word(std::uint32_t word, std::uint32_t ranks, Seat* seat) {
        const std::uint32_t places = word >> kNodeBits;
        const std::uint32_t number = word & ((1U << kNodeBits) - 1);
        *seat = places == 0 ? Seat() : Seat{places, number % places, number / places};
        return places == 0 ? number == 0 : places > 1 && ranks % places == 0 && ranks > places && number < ranks;
    }

  private:
    static constexpr std::uint32_t kNodeBits = 20; ///< the others are for 1024 places
};

/// Of all ranks on two levels.
inline std::vector<Seat> seats_of(const NodeGroups& groups) {
    std::vector<Seat> seats;
    std::vector<std::uint32_t> taken(groups.places);
    for (const int place : groups.place_of_rank) {
        const auto number = static_cast<std::uint32_t>(place);
        seats.push_back({static_cast<std::uint32_t>(groups.places), number, taken[number]++});
    }
    return seats;
}

} // namespace onebit
