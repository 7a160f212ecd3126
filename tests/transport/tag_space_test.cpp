// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The tags of several ranks, which take tags together and release them separately: in any order of calls all ranks take
// the same tags, and no tag is taken that some rank still holds.
#include "transport/tag_space.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "support/catch2.hpp"

namespace onebit {
namespace {

/// Tags of a block of a small space.
constexpr int kBlock = 64;

class Ranks {
  public:
    Ranks(int ranks, int first, int tags) : held_(static_cast<std::size_t>(ranks)) {
        for (int r = 0; r < ranks; ++r) spaces_.push_back(std::make_unique<TagSpace>(first, tags));
    }

    TagSpace& space(std::size_t rank) { return *spaces_[rank]; }
    std::size_t ranks() const { return spaces_.size(); }
    std::map<int, int>& held(std::size_t rank) { return held_[rank]; }

    /// On all ranks. False if no rank has room.
    template <typename Take>
    bool take(int tags, const Take& take_one) {
        int common = -1;
        int successes = 0;
        for (std::size_t r = 0; r < ranks(); ++r) {
            int first = 0;
            if (!take_one(space(r), &first).ok()) continue;
            ++successes;
            if (common < 0) common = first;
            REQUIRE(first == common);
        }
        REQUIRE((successes == 0 || successes == static_cast<int>(ranks())));
        if (successes == 0) return false;
        for (const std::map<int, int>& held : held_) {
            for (const auto& [first, length] : held) REQUIRE((common >= first + length || common + tags <= first));
        }
        REQUIRE(common >= space(0).first());
        REQUIRE(common + tags <= space(0).first() + space(0).tags());
        for (std::map<int, int>& held : held_) held[common] = tags;
        return true;
    }
    bool take_channel(int tags) {
        return take(tags, [&](TagSpace& space, int* first) { return space.take(tags, first); });
    }
    bool take_part() {
        return take(space(0).tags_of_part(), [&](TagSpace& space, int* first) { return space.take_part(first); });
    }

    void let_go(std::size_t rank, std::size_t which) {
        const auto range = std::next(held(rank).begin(), static_cast<std::ptrdiff_t>(which));
        space(rank).let_go(range->first);
        held(rank).erase(range);
    }

    void tell_each_other() {
        std::vector<std::uint64_t> of_any(space(0).held_words());
        for (std::size_t r = 0; r < ranks(); ++r) {
            REQUIRE(space(r).held_words() == of_any.size());
            const std::vector<std::uint64_t> held = space(r).held();
            REQUIRE(held.size() == of_any.size());
            for (std::size_t i = 0; i < held.size(); ++i) of_any[i] |= held[i];
        }
        for (std::size_t r = 0; r < ranks(); ++r) space(r).free_all_but(of_any);
    }

  private:
    std::vector<std::unique_ptr<TagSpace>> spaces_;
    std::vector<std::map<int, int>> held_; ///< by rank; how many, by the first
};

TEST_CASE("nothing is taken that a rank still holds, whatever ranks do", "[transport][tags]") {
    const int blocks = GENERATE(2, 31, 63, 64, 65, 200, 16384, 80000);
    const int first = GENERATE(1, 70001);
    for (unsigned seed = 0; seed < 12; ++seed) {
        CAPTURE(blocks, first, seed);
        std::mt19937 draw(seed);
        Ranks all(1 + static_cast<int>(draw() % 4), first, blocks * kBlock + static_cast<int>(draw() % 64));
        int taken = 0;
        for (int round = 0; round < 300; ++round) {
            const unsigned what = draw() % 16;
            if (what < 7) {
                taken += all.take_channel(1 + static_cast<int>(draw() % (blocks * 9))) ? 1 : 0;
            } else if (what < 8) {
                if (all.space(0).tags_of_part() > 0) taken += all.take_part() ? 1 : 0;
            } else if (what < 15) {
                const std::size_t rank = draw() % all.ranks();
                if (!all.held(rank).empty()) all.let_go(rank, draw() % all.held(rank).size());
            } else {
                all.tell_each_other();
            }
        }
        CHECK(taken > 0);
        for (std::size_t r = 0; r < all.ranks(); ++r) {
            while (!all.held(r).empty()) all.let_go(r, 0);
        }
        all.tell_each_other(); // all tags are free again
        CHECK(all.take_channel(all.space(0).tags()));
    }
}

TEST_CASE("what has been let go is not taken before the ranks have told each other", "[transport][tags]") {
    Ranks all(2, 1, 10 * kBlock);
    REQUIRE(all.take_channel(10 * kBlock));
    for (std::size_t r = 0; r < 2; ++r) all.let_go(r, 0);
    CHECK_FALSE(all.space(0).has_room(1));
    CHECK_FALSE(all.take_channel(1));
    all.tell_each_other();
    CHECK(all.space(0).has_room(1));
    CHECK(all.take_channel(1));
}

TEST_CASE("channels and parts don't come between each other", "[transport][tags]") {
    Ranks all(1, 1, 64 * kBlock);
    for (int channel = 0; channel < 32; ++channel) REQUIRE(all.take_channel(1));
    for (int part = 0; part < 8; ++part) REQUIRE(all.take_part());
    CHECK_FALSE(all.take_part());
    CHECK_FALSE(all.take_channel(1));
}

TEST_CASE("a communicator has as many parts at once as onebit.h says, whatever MPI has of tags", "[transport][tags]") {
    struct {
        int tags;
        int parts;
    } const spaces[] = {{std::numeric_limits<int>::max() - 1, 2000}, {(1 << 28) - 1, 255}, {1 << 20, 15}};
    for (const auto& space : spaces) {
        CAPTURE(space.tags);
        Ranks all(1, 1, space.tags);
        REQUIRE(all.take_channel(128)); // its own
        int parts = 0;
        while (all.take_part()) ++parts;
        CHECK(parts >= space.parts);
        CHECK(all.space(0).tags_of_part() == std::min(1 << 20, space.tags / 16));
    }
}

} // namespace
} // namespace onebit
