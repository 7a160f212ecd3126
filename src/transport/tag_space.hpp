// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/status.hpp"

namespace onebit {

/// The tags of a group of ranks. Channels and parts of the group take ranges of them, in blocks. Ranks make the same
/// channels in the same order, so all ranks take the same ranges without a word. Each rank lets a range go when it has
/// destroyed what took it, of which the others know nothing. A range is given again only after the ranks have told each
/// other that none of them holds it. May be used by several threads.
class TagSpace {
  public:
    /// Tags of a block.
    static constexpr int kBlock = 64;
    /// More than these are not used.
    static constexpr int kMostTags = 1 << 26;
    /// Words of what ranks tell each other at once.
    static constexpr std::size_t kWindowWords = 1024;

    /// Of so many tags, from `first` on.
    TagSpace(int first, int tags);

    int first() const { return first_; }
    int tags() const { return static_cast<int>(blocks_) * kBlock; }
    /// How many a part takes. 0: this space is too small to be divided.
    int tags_of_part() const { return static_cast<int>(blocks_of_part_) * kBlock; }

    // ---- the same on every rank, where all make the same calls ----

    /// Whether a channel of so many tags, or a part, finds room before the ranks tell each other what they hold.
    bool has_room(int tags) const;
    bool has_room_for_part() const;
    /// A range that no rank holds. Needs no memory. UNSUPPORTED where there is none.
    Status take(int tags, int* first);
    Status take_part(int* first);

    /// Ranks tell each other what they hold in so many windows, one after the other.
    std::size_t windows() const;
    std::size_t window_bytes(std::size_t window) const;
    /// From now on what is not among `held_by_any` is free in this window.
    void free_all_but(std::size_t window, std::span<const std::uint64_t> held_by_any);

    // ---- this rank's ----

    /// The blocks of a window that this rank holds, a bit each; of words that depend on the window alone.
    std::vector<std::uint64_t> held(std::size_t window) const;
    /// Needs no memory.
    void let_go(int first, int tags);

  private:
    /// A bit for each block.
    using Blocks = std::vector<std::uint64_t>;
    struct Range {
        std::size_t begin;
        std::size_t end;
    };
    static constexpr std::size_t kWordBlocks = 64;

    bool is_taken(std::size_t block) const { return (taken_[block / kWordBlocks] >> block % kWordBlocks & 1) != 0; }
    bool is_free(const Range& range) const;
    /// The first so many free blocks in a row within `range`, if there are any.
    bool find(std::size_t blocks, const Range& range, Range* found) const;
    /// For a part. From the end on, so that channels and parts don't come between each other.
    bool find_part(Range* found) const;
    /// For a channel, behind the one before, in the half that parts take last.
    bool find_behind(std::size_t blocks, Range* found) const;
    /// `range`, if one has been found.
    Status take_found(bool found, const Range& range, int* first);

    int first_;
    std::size_t blocks_;
    std::size_t blocks_of_part_;
    mutable std::mutex mutex_; ///< of what follows
    Blocks taken_;             ///< the same on every rank
    Blocks held_;              ///< those of them that this rank has not let go
    std::size_t next_ = 0;     ///< where channels are looked for
};

} // namespace onebit
