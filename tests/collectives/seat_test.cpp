// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/forms/seat.hpp"

#include "support/catch2.hpp"

namespace onebit {
namespace {

// Ranks in consecutive nodes, in turn, and neither.
const std::vector<std::vector<int>>& all_placements() {
    static const std::vector<std::vector<int>> all = {{0, 0, 1, 1},       {0, 1, 0, 1},       {0, 1, 1, 0},
                                                      {0, 0, 1, 1, 2, 2}, {0, 1, 2, 2, 1, 0}, {0, 1, 0, 0, 1, 1}};
    return all;
}

TEST_CASE("seats: each place of a node has one rank, and the ranks of a place serve all of its shard", "[seat]") {
    for (const std::vector<int>& node_of_rank : all_placements()) {
        const NodeGroups groups = NodeGroups::of(node_of_rank);
        const std::vector<Seat> seats = seats_of(groups);
        const std::size_t ranks = node_of_rank.size();
        REQUIRE(seats.size() == ranks);
        for (const std::size_t count : {ranks, std::size_t{33}, std::size_t{4097}, std::size_t{100003}}) {
            CAPTURE(count, ranks, groups.places);
            std::vector<int> times_served(count);
            std::vector<int> times_owned(count);
            for (std::size_t r = 0; r < ranks; ++r) {
                CHECK(seats[r].places == groups.places);
                CHECK(seats[r].place == static_cast<std::uint32_t>(groups.place_of_rank[r]));
                const Chunk shard = seats[r].shard(count);
                const Chunk served = seats[r].served(count, ranks);
                CHECK((served.begin >= shard.begin && served.begin + served.count <= shard.begin + shard.count));
                for (std::size_t i = 0; i < served.count; ++i) ++times_served[served.begin + i];
                for (std::size_t i = 0; i < shard.count; ++i) ++times_owned[shard.begin + i];
            }
            CHECK(times_served == std::vector<int>(count, 1));
            CHECK(times_owned == std::vector<int>(count, static_cast<int>(groups.nodes)));
        }
    }
}

TEST_CASE("seats: as words and back, and no others", "[seat]") {
    for (const std::vector<int>& node_of_rank : all_placements()) {
        const auto ranks = static_cast<std::uint32_t>(node_of_rank.size());
        for (const Seat& seat : seats_of(NodeGroups::of(node_of_rank))) {
            Seat read;
            CHECK(Seat::from_word(seat.word(), ranks, &read));
            CHECK(read == seat);
            CHECK_FALSE(Seat::from_word(seat.word(), ranks + 1, &read));     // nodes can't share these ranks equally
            CHECK_FALSE(Seat::from_word(seat.word() + ranks, ranks, &read)); // no rank serves that
        }
    }
    Seat flat;
    CHECK(Seat::from_word(Seat().word(), 4, &flat));
    CHECK_FALSE(flat.on_two_levels());
    CHECK_FALSE(Seat::from_word(1, 4, &flat));        // flat, but the second
    CHECK_FALSE(Seat::from_word(1U << 20, 4, &flat)); // one place
    CHECK_FALSE(Seat::from_word(4U << 20, 4, &flat)); // one node
    CHECK_FALSE(Seat::from_word(0xffffffffU, 1U << 20, &flat));
}

} // namespace
} // namespace onebit
