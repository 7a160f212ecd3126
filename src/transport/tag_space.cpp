// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tag_space.hpp"

#include <algorithm>
#include <bit>

#include "core/partition.hpp"

namespace onebit {
namespace {

constexpr int kFewestInBlock = 64;
/// A table of them stays small.
constexpr int kMostBlocks = 1 << 20;

int tags_of_block(int tags) {
    int block_tags = kFewestInBlock;
    while (tags / block_tags > kMostBlocks) block_tags *= 2;
    return block_tags;
}

/// Enough for hundreds of handles, and few enough for fifteen parts of a part.
std::size_t blocks_of_part(std::size_t blocks, int block_tags) {
    constexpr int kMostTags = 1 << 20;
    constexpr std::size_t kParts = 16; // the first one's place is the group's own channel's
    return std::min(static_cast<std::size_t>(kMostTags / block_tags), blocks / kParts);
}

} // namespace

TagSpace::TagSpace(int first, int tags)
    : first_(first),
      block_tags_(tags_of_block(tags)),
      blocks_(static_cast<std::size_t>(tags / block_tags_)),
      blocks_of_part_(blocks_of_part(blocks_, block_tags_)),
      taken_(ceil_divide(blocks_, kWordBlocks)),
      begins_(taken_.size()),
      limit_(blocks_ / 2), // parts come from the other end
      held_(taken_.size()) {}

// ------------------------------------------------------------------------------------------------- looking ----

std::size_t TagSpace::blocks_for(int tags) const {
    return ceil_divide(static_cast<std::size_t>(tags), static_cast<std::size_t>(block_tags_));
}

bool TagSpace::is_free(const Range& range) const {
    for (std::size_t block = range.begin; block < range.end; ++block) {
        if (has(taken_, block)) return false;
    }
    return true;
}

bool TagSpace::find(std::size_t blocks, const Range& range, Range* found) const {
    std::size_t begin = range.begin;
    for (std::size_t block = begin; block < range.end; ++block) {
        if (has(taken_, block)) begin = block + 1;
        if (block + 1 - begin == blocks) {
            *found = {begin, block + 1};
            return true;
        }
    }
    return false;
}

bool TagSpace::find_part(Range* found) const {
    if (blocks_of_part_ == 0) return false;
    for (std::size_t end = blocks_; end >= blocks_of_part_; end -= blocks_of_part_) {
        *found = {end - blocks_of_part_, end};
        if (is_free(*found)) return true;
    }
    return false;
}

bool TagSpace::find_behind(std::size_t blocks, Range* found) const {
    return find(blocks, {next_, limit_}, found);
}

bool TagSpace::has_room(int tags) const {
    const std::lock_guard lock(mutex_);
    Range found{};
    return find_behind(blocks_for(tags), &found);
}

bool TagSpace::has_room_for_part() const {
    const std::lock_guard lock(mutex_);
    Range found{};
    return find_part(&found);
}

// -------------------------------------------------------------------------------------------------- taking ----

Status TagSpace::take(int tags, int* first) {
    const std::lock_guard lock(mutex_);
    const std::size_t blocks = blocks_for(tags);
    Range found{};
    const bool behind = find_behind(blocks, &found);
    if (behind) next_ = found.end;
    return take_found(behind || find(blocks, {0, blocks_}, &found), found, blocks, first);
}

Status TagSpace::take_part(int* first) {
    const std::lock_guard lock(mutex_);
    Range found{};
    const bool is_room = find_part(&found);
    return take_found(is_room, found, blocks_of_part_, first);
}

Status TagSpace::take_found(bool found, const Range& range, std::size_t blocks, int* first) {
    if (!found) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "of the communicator's %d tags no %zu in a row are free: destroy some of its handles or "
                             "parts, or make another communicator (a part has few tags, and a part of a part fewer)",
                             tags(), std::max<std::size_t>(blocks, 1) * static_cast<std::size_t>(block_tags_));
    }
    for (std::size_t block = range.begin; block < range.end; ++block) set(taken_, block);
    set(begins_, range.begin);
    set(held_, range.begin);
    ++ranges_;
    *first = first_ + static_cast<int>(range.begin) * block_tags_;
    return {};
}

// --------------------------------------------------------------------------------------------- giving back ----

void TagSpace::let_go(int first) {
    const std::lock_guard lock(mutex_);
    clear(held_, static_cast<std::size_t>((first - first_) / block_tags_));
}

template <typename Visit>
void TagSpace::for_each_range(const Visit& visit) const {
    for (std::size_t word = 0; word < begins_.size(); ++word) {
        for (std::uint64_t left = begins_[word]; left != 0; left &= left - 1) {
            visit(word * kWordBlocks + static_cast<std::size_t>(std::countr_zero(left)));
        }
    }
}

std::size_t TagSpace::held_words() const {
    const std::lock_guard lock(mutex_);
    return ceil_divide(ranges_, kWordBlocks);
}

std::vector<std::uint64_t> TagSpace::held() const {
    const std::lock_guard lock(mutex_);
    Blocks of_ranges(ceil_divide(ranges_, kWordBlocks));
    std::size_t range = 0;
    for_each_range([&](std::size_t begin) {
        if (has(held_, begin)) set(of_ranges, range);
        ++range;
    });
    return of_ranges;
}

void TagSpace::free_all_but(std::span<const std::uint64_t> held_by_any) {
    const std::lock_guard lock(mutex_);
    std::size_t range = 0;
    for_each_range([&](std::size_t begin) {
        const bool is_held = (held_by_any[range / kWordBlocks] >> range % kWordBlocks & 1) != 0;
        ++range;
        if (is_held) return;
        clear(begins_, begin);
        --ranges_;
        std::size_t block = begin;
        do {
            clear(taken_, block++);
        } while (block < blocks_ && has(taken_, block) && !has(begins_, block));
    });
    std::size_t taken = 0;
    for (std::size_t block = 0; block < blocks_ / 2; ++block) taken += has(taken_, block) ? 1 : 0;
    const bool is_crowded = taken > blocks_ / 2 / 4 * 3;
    limit_ = is_crowded ? blocks_ : blocks_ / 2; // else each creation would have to ask
    next_ = 0;
}

} // namespace onebit
