// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tag_space.hpp"

#include <algorithm>

#include "core/partition.hpp"

namespace onebit {
namespace {

std::size_t blocks_for(int tags) {
    return ceil_divide(static_cast<std::size_t>(tags), static_cast<std::size_t>(TagSpace::kBlock));
}

/// Enough for thousands of handles, and few enough for sixteen parts of a part.
std::size_t blocks_of_part(std::size_t blocks) {
    constexpr std::size_t kMost = (1 << 20) / TagSpace::kBlock;
    constexpr std::size_t kParts = 16;
    return std::min(kMost, blocks / kParts);
}

} // namespace

TagSpace::TagSpace(int first, int tags)
    : first_(first),
      blocks_(static_cast<std::size_t>(std::min(tags, kMostTags) / kBlock)),
      blocks_of_part_(blocks_of_part(blocks_)),
      taken_(ceil_divide(blocks_, kWordBlocks)),
      held_(taken_.size()) {}

// ------------------------------------------------------------------------------------------------- looking ----

bool TagSpace::is_free(const Range& range) const {
    for (std::size_t block = range.begin; block < range.end; ++block) {
        if (is_taken(block)) return false;
    }
    return true;
}

bool TagSpace::find(std::size_t blocks, const Range& range, Range* found) const {
    std::size_t begin = range.begin;
    for (std::size_t block = begin; block < range.end; ++block) {
        if (is_taken(block)) begin = block + 1;
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
    return find(blocks, {next_, blocks_ / 2}, found);
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
    return take_found(behind || find(blocks, {0, blocks_}, &found), found, first);
}

Status TagSpace::take_part(int* first) {
    const std::lock_guard lock(mutex_);
    Range found{};
    const bool is_room = find_part(&found);
    return take_found(is_room, found, first);
}

Status TagSpace::take_found(bool found, const Range& range, int* first) {
    if (!found) {
        return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                             "the %d tags of the communicator are in use: destroy some of its handles or parts, or "
                             "make another communicator",
                             tags());
    }
    for (std::size_t block = range.begin; block < range.end; ++block) {
        const std::uint64_t bit = std::uint64_t{1} << block % kWordBlocks;
        taken_[block / kWordBlocks] |= bit;
        held_[block / kWordBlocks] |= bit;
    }
    *first = first_ + static_cast<int>(range.begin) * kBlock;
    return {};
}

// ------------------------------------------------------------------------------------------- giving back ----

void TagSpace::let_go(int first, int tags) {
    const std::lock_guard lock(mutex_);
    const auto begin = static_cast<std::size_t>((first - first_) / kBlock);
    for (std::size_t block = begin; block < begin + blocks_for(tags); ++block) {
        held_[block / kWordBlocks] &= ~(std::uint64_t{1} << block % kWordBlocks);
    }
}

std::size_t TagSpace::windows() const {
    return ceil_divide(held_.size(), kWindowWords);
}

std::size_t TagSpace::window_bytes(std::size_t window) const {
    return std::min(held_.size() - window * kWindowWords, kWindowWords) * sizeof(std::uint64_t);
}

std::vector<std::uint64_t> TagSpace::held(std::size_t window) const {
    const std::lock_guard lock(mutex_);
    const auto words = std::span(held_).subspan(window * kWindowWords, window_bytes(window) / sizeof(std::uint64_t));
    return {words.begin(), words.end()};
}

void TagSpace::free_all_but(std::size_t window, std::span<const std::uint64_t> held_by_any) {
    const std::lock_guard lock(mutex_);
    std::ranges::copy(held_by_any, taken_.begin() + static_cast<std::ptrdiff_t>(window * kWindowWords));
    next_ = 0;
}

} // namespace onebit
