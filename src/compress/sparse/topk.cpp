// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/sparse/topk.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

namespace onebit {
namespace {

/// The least magnitude that isn't 0: corrected values are never subnormal.
constexpr float kLeast = FLT_MIN;

/// `kept` has all elements that are larger than `magnitude`. Adds the first elements that have this magnitude.
void add_equals(const float* corrected, float magnitude, std::size_t found, std::size_t entries, Positions* kept) {
    std::uint16_t* const to = kept->at;
    std::uint16_t larger[kMostKept];
    std::copy_n(to, found, larger);
    std::size_t next = 0; // of the larger ones
    std::size_t equals = entries - found;
    for (std::size_t i = 0, taken = 0; taken < entries; ++i) {
        const bool is_larger = next < found && larger[next] == i;
        const bool is_equal = equals > 0 && std::fabs(corrected[i]) == magnitude;
        next += is_larger ? 1 : 0;
        equals -= is_equal ? 1 : 0;
        if (is_larger || is_equal) to[taken++] = static_cast<std::uint16_t>(i);
    }
}

/// The few largest elements of each block, on the host. Their positions are sent.
class TopkCodec final : public SparseCodec {
  public:
    explicit TopkCodec(const CodecConfig& config) : SparseCodec(config, topk_layout(config.sparse)) {}

  private:
    void choose(const ToChoose& from, Positions* kept, std::uint32_t* words) const override;
    Entries read_positions(const Tile& tile, const std::uint32_t* words, Positions* kept) const override;
    void find_largest(const ToChoose& from, Positions* kept) const;
};

void TopkCodec::choose(const ToChoose& from, Positions* kept, std::uint32_t* words) const {
    find_largest(from, kept);
    for (std::size_t j = 0; j < entries(from.block.count()); ++j) write_entry(words, kPositionBits, j, kept->at[j]);
}

/// Positions ascend.
SparseCodec::Entries TopkCodec::read_positions(const Tile& tile, const std::uint32_t* words, Positions* kept) const {
    std::size_t first = 0;
    std::size_t end = entries(tile.block.count());
    for (std::size_t above = end; first < above;) { // bisect
        const std::size_t middle = (first + above) / 2;
        if (read_entry(words, kPositionBits, middle) < tile.in_block) {
            first = middle + 1;
        } else {
            above = middle;
        }
    }
    for (std::size_t j = first; j < end; ++j) {
        kept->at[j] = static_cast<std::uint16_t>(read_entry(words, kPositionBits, j));
        if (kept->at[j] >= tile.in_block + tile.count) end = j;
    }
    return {first, end};
}

/// The largest elements, of equal ones the earlier.
void TopkCodec::find_largest(const ToChoose& from, Positions* kept) const {
    const auto& [block, call, corrected, of_runs] = from;
    const std::size_t count = block.count();
    const std::size_t entries = this->entries(count);

    // The largest elements of `entries` runs reach this bound; few other elements do. Where fewer than `entries` runs
    // have elements that aren't 0, all such elements reach it.
    const float bound = std::max(kernels_.find_kth(of_runs, ceil_divide(count, kRunElements), entries), kLeast);
    const std::size_t found = kernels_.find_at_least(corrected, count, of_runs, bound, kept);
    if (found == entries) return;
    if (found < entries) return add_equals(corrected, 0, found, entries, kept);

    // The smallest element that is kept is among the found ones.
    if (found > Positions::kMost) {
        const float smallest = kernels_.find_kth(corrected, count, entries);
        const float above = std::bit_cast<float>(std::bit_cast<std::uint32_t>(smallest) + 1);
        const std::size_t larger = kernels_.find_at_least(corrected, count, of_runs, above, kept);
        return add_equals(corrected, smallest, larger, entries, kept);
    }
    float candidates[Positions::kMost];
    for (std::size_t j = 0; j < found; ++j) candidates[j] = std::fabs(corrected[kept->at[j]]);
    const float smallest = kernels_.find_kth(candidates, found, entries);
    const auto is_larger = [=](float magnitude) { return magnitude > smallest; };
    std::size_t equals = entries - static_cast<std::size_t>(std::count_if(candidates, candidates + found, is_larger));
    for (std::size_t j = 0, taken = 0; taken < entries; ++j) {
        const bool is_equal = candidates[j] == smallest && equals > 0;
        kept->at[taken] = kept->at[j]; // without a branch
        equals -= is_equal ? 1 : 0;
        taken += is_larger(candidates[j]) || is_equal ? 1 : 0;
    }
}

} // namespace

Status make_topk_codec(const CodecConfig& config, std::unique_ptr<Codec>* codec) {
    ONEBIT_RETURN_IF_ERROR(check_kernels(config.kernels));
    *codec = std::make_unique<TopkCodec>(config);
    return {};
}

} // namespace onebit
