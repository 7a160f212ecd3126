// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/bruck.hpp"

#include <algorithm>
#include <utility>

#include "schedule/hopping_exchange.hpp"

namespace onebit {
namespace {

std::vector<std::size_t> weights(std::size_t ranks, std::size_t radix) {
    std::vector<std::size_t> weights;
    for (std::size_t weight = 1; weight < ranks; weight *= radix) weights.push_back(weight);
    return weights;
}

/// The distances, in ranks, of the blocks that go `digit` * `weight` ranks further at the hop of that weight.
std::vector<std::size_t> distances_with(std::size_t digit, std::size_t weight, std::size_t radix, std::size_t ranks) {
    std::vector<std::size_t> distances;
    for (std::size_t distance = 1; distance < ranks; ++distance) {
        if (distance / weight % radix == digit) distances.push_back(distance);
    }
    return distances;
}

/// The all-to-all of one rank while it is planned: where the blocks are so far.
class AllToAllPlan {
  public:
    AllToAllPlan(Transport& transport, int tag, std::size_t radix, std::span<const Part> to,
                 std::vector<AlignedBuffer<std::byte>>& buffers)
        : transport_(transport),
          tag_(tag),
          radix_(radix),
          rank_(static_cast<std::size_t>(transport.rank())),
          ranks_(to.size()),
          to_(to),
          buffers_(buffers) {
        for (std::size_t distance = 0; distance < ranks_; ++distance) at_.push_back(to_[ahead(distance)].data);
    }

    Status plan_hop(std::size_t weight, HoppingExchange& exchange) {
        HoppingExchange::Hop hop;
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (std::size_t digit = 1; digit < radix_ && digit * weight < ranks_; ++digit) {
            const std::vector<std::size_t> distances = distances_with(digit, weight, radix_, ranks_);
            const std::size_t next = ahead(digit * weight);
            const std::size_t previous = ahead(ranks_ - digit * weight);
            const std::size_t out_bytes = bytes_of(distances, weight, rank_);
            const std::size_t in_bytes = bytes_of(distances, weight, previous);
            std::byte* out = buffers_.emplace_back(out_bytes).data();
            std::byte* in = buffers_.emplace_back(in_bytes).data();
            sends.push_back({static_cast<int>(next), out, out_bytes});
            receives.push_back({static_cast<int>(previous), in, in_bytes});
            for (const std::size_t distance : distances) {
                const std::size_t leaving = bytes_of(distance, weight, rank_);
                if (leaving > 0) hop.copies.push_back({at_[distance], out, leaving});
                out += leaving;
                at_[distance] = in;
                in += bytes_of(distance, weight, previous);
            }
        }
        ONEBIT_RETURN_IF_ERROR(transport_.plan_exchange(std::move(sends), std::move(receives), tag_, &hop.messages));
        exchange.add_hop(std::move(hop));
        return {};
    }

    /// All blocks have arrived: a block with `distance` to go came from `distance` ranks back.
    std::vector<HoppingExchange::Copy> last_copies(std::span<void* const> from) const {
        std::vector<HoppingExchange::Copy> copies;
        if (to_[rank_].bytes == 0) return copies;
        for (std::size_t distance = 1; distance < ranks_; ++distance) {
            copies.push_back({at_[distance], from[ahead(ranks_ - distance)], to_[rank_].bytes});
        }
        return copies;
    }

  private:
    std::size_t ahead(std::size_t distance) const { return (rank_ + distance) % ranks_; }

    /// The size of the block with total distance `distance` that `holder` has before the hop of that weight: the block
    /// has gone as far as the lower digits say.
    std::size_t bytes_of(std::size_t distance, std::size_t weight, std::size_t holder) const {
        return to_[(holder + distance - distance % weight) % ranks_].bytes;
    }
    std::size_t bytes_of(const std::vector<std::size_t>& distances, std::size_t weight, std::size_t holder) const {
        std::size_t bytes = 0;
        for (const std::size_t distance : distances) bytes += bytes_of(distance, weight, holder);
        return bytes;
    }

    Transport& transport_;
    int tag_;
    std::size_t radix_;
    std::size_t rank_;
    std::size_t ranks_;
    std::span<const Part> to_;
    std::vector<AlignedBuffer<std::byte>>& buffers_;
    std::vector<const void*> at_; ///< by the total distance that a block has to go
};

/// The blocks of `count` ranks from `first` on, wrapping at the end: at most two parts.
void append_blocks(std::size_t first, std::size_t count, std::size_t peer, std::byte* all,
                   std::span<const std::size_t> offsets, std::vector<Part>* parts) {
    const std::size_t ranks = offsets.size() - 1;
    const std::size_t end = std::min(first + count, ranks);
    parts->push_back({static_cast<int>(peer), all + offsets[first], offsets[end] - offsets[first]});
    if (first + count > ranks) parts->push_back({static_cast<int>(peer), all, offsets[first + count - ranks]});
}

} // namespace

BruckShape bruck_shape(std::size_t ranks, std::size_t radix) {
    BruckShape shape;
    for (const std::size_t weight : weights(ranks, radix)) {
        ++shape.hops;
        shape.messages += std::min(radix - 1, (ranks - 1) / weight);
        // The number of distances with digit zero there.
        const std::size_t stay = ranks / (radix * weight) * weight + std::min(ranks % (radix * weight), weight);
        shape.all_to_all_blocks += ranks - stay;
    }
    return shape;
}

Status plan_bruck_all_to_all(Transport& transport, int tag, std::size_t radix, std::span<const Part> to,
                             std::span<void* const> from, std::vector<AlignedBuffer<std::byte>>* buffers,
                             std::unique_ptr<Exchange>* exchange) {
    auto planned = std::make_unique<HoppingExchange>();
    AllToAllPlan plan(transport, tag, radix, to, *buffers);
    for (const std::size_t weight : weights(to.size(), radix)) {
        ONEBIT_RETURN_IF_ERROR(plan.plan_hop(weight, *planned));
    }
    planned->set_last_copies(plan.last_copies(from));
    *exchange = std::move(planned);
    return {};
}

Status plan_bruck_all_gather(Transport& transport, int tag, std::size_t radix, void* all,
                             std::span<const std::size_t> offsets, std::unique_ptr<Exchange>* exchange) {
    auto planned = std::make_unique<HoppingExchange>();
    auto* const base = static_cast<std::byte*>(all);
    const std::size_t ranks = offsets.size() - 1;
    const auto rank = static_cast<std::size_t>(transport.rank());
    for (const std::size_t weight : weights(ranks, radix)) {
        std::vector<Part> sends;
        std::vector<Part> receives;
        for (std::size_t digit = 1; digit < radix && digit * weight < ranks; ++digit) {
            const std::size_t count = std::min(weight, ranks - digit * weight);
            const std::size_t next = (rank + digit * weight) % ranks;
            const std::size_t previous = (rank + ranks - digit * weight) % ranks;
            append_blocks(rank, count, previous, base, offsets, &sends);
            append_blocks(next, count, next, base, offsets, &receives);
        }
        HoppingExchange::Hop hop;
        ONEBIT_RETURN_IF_ERROR(transport.plan_exchange(std::move(sends), std::move(receives), tag, &hop.messages));
        planned->add_hop(std::move(hop));
    }
    *exchange = std::move(planned);
    return {};
}

} // namespace onebit
