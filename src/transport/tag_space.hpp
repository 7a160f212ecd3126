// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// The tags of a group of ranks. Channels and parts of the group take ranges of them, in blocks. Ranks make the same
/// channels in the same order, so all ranks take the same ranges without messages. Each rank lets a range go when it
/// has destroyed the channel or part that took it; other ranks don't know this. A range is given again only after the
/// ranks have told each other that none of them holds it. One communicator takes from the space; any thread may let go.
class TagSpace {
  public:
    /// Of so many tags, from `first` on.
    TagSpace(int first, int tags);

    int first() const { return first_; }
    int tags() const { return static_cast<int>(blocks_) * block_tags_; }
    /// How many tags a part takes. 0: this space is too small to be divided.
    int tags_of_part() const { return static_cast<int>(blocks_of_part_) * block_tags_; }

    // ---- the same on every rank, where all make the same calls ----

    /// Whether a channel of so many tags, or a part, finds room before the ranks tell each other what they hold.
    bool has_room(int tags) const;
    bool has_room_for_part() const;
    /// A range that no rank holds. Needs no memory. UNSUPPORTED where there is none.
    Status take(int tags, int* first);
    Status take_part(int* first);
    /// The number of words of held().
    std::size_t held_words() const;
    /// From now on a range is free unless its bit is set in `held_by_any`, all ranks' held() together. Needs no memory.
    void free_all_but(std::span<const std::uint64_t> held_by_any);

    // ---- this rank's ----

    /// A bit for each range that is taken: whether this rank holds it.
    std::vector<std::uint64_t> held() const;
    /// The whole range that begins there. Needs no memory.
    void let_go(int first);

  private:
    /// A bit for each block.
    using Blocks = std::vector<std::uint64_t>;
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    static constexpr std::size_t kWordBlocks = 64;

    static bool has(const Blocks& blocks, std::size_t block) {
        return (blocks[block / kWordBlocks] >> block % kWordBlocks & 1) != 0;
    }
    static void set(Blocks& blocks, std::size_t block) {
        blocks[block / kWordBlocks] |= std::uint64_t{1} << block % kWordBlocks;
    }
    static void clear(Blocks& blocks, std::size_t block) {
        blocks[block / kWordBlocks] &= ~(std::uint64_t{1} << block % kWordBlocks);
    }
    std::size_t blocks_for(int tags) const;
    bool is_free(const Range& range) const;
    /// The first `blocks` free blocks in a row within `range`, if there are any.
    bool find(std::size_t blocks, const Range& range, Range* found) const;
    /// For a part. From the end on, so that channels and parts don't come between each other.
    bool find_part(Range* found) const;
    /// For a channel, behind the one before.
    bool find_behind(std::size_t blocks, Range* found) const;
    /// `range`, if one has been found for so many blocks.
    Status take_found(bool found, const Range& range, std::size_t blocks, int* first);
    /// Calls visit(block) for each block that a range begins with, in order.
    template <typename Visit>
    void for_each_range(const Visit& visit) const;

    int first_;
    int block_tags_; ///< of one block
    std::size_t blocks_;
    std::size_t blocks_of_part_;
    mutable std::mutex mutex_; ///< guards what follows
    // The same on every rank:
    Blocks taken_;
    Blocks begins_; ///< the taken blocks that a range begins with
    std::size_t ranges_ = 0;
    std::size_t next_ = 0; ///< where the search for a channel begins
    std::size_t limit_;    ///< where it ends, before ranks tell each other
    // This rank's:
    Blocks held_; ///< of begins_
};

} // namespace onebit
