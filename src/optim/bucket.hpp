// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/allreduce.hpp"
#include "core/aligned_buffer.hpp"
#include "optim/passes.hpp"
#include "optim/tensors.hpp"

namespace onebit {

/// Tensors that are exchanged as one buffer, and what every kind of optimizer keeps for them.
struct Bucket {
    Layout layout;
    bool compresses = false;             ///< from the compression stage on, or always; else exact for ever
    std::unique_ptr<Passes> passes;      ///< over its layout; the arrays below lie where they work
    std::unique_ptr<ValueSource> source; ///< what a compressed exchange encodes; only where the bucket compresses
    AlignedBuffer<float> sum; ///< of the gradients over the ranks, in exact rounds; in other rounds a GPU's passes form
                              ///< in it the values that they can't encode in place
    AlignedBuffer<float> m;
    AlignedBuffer<float> v;
    AlignedBuffer<float> precondition; ///< v's place once it is frozen: 1 / (sqrt(v) + eps)
    AlignedBuffer<float> v_fresh;      ///< 1-bit LAMB's, after the freeze
    AlignedBuffer<float> anchor;       ///< 0/1 Adam's, after the freeze: the parameters after the last round

    /// After the freeze, where elements are masked: the sums of their gradients on this rank since the last admission.
    AlignedBuffer<float> masked_gradients;

    std::unique_ptr<Allreduce> allreduce; ///< after the arrays it may send and receive

    // Of the coming step, once one of its tensors is ready.
    std::size_t tensors_ready = 0;
    bool started = false; ///< its early exchange
    bool looked = false;  ///< the result of the last look at its gradients is known
    Status found;         ///< that result

    std::size_t bytes() const {
        return layout.bytes() + sum.bytes() + m.bytes() + v.bytes() + precondition.bytes() + v_fresh.bytes() +
               anchor.bytes() + masked_gradients.bytes() + (passes == nullptr ? 0 : passes->bytes());
    }
};

/// Whether a mask, one bit per element, lets an element of the layout take part in exchanges.
inline bool takes_part(std::span<const std::uint32_t> mask, std::size_t element) {
    return (mask[element / kWordElements] >> (element % kWordElements) & 1) != 0;
}

/// Shows the host a fused array in order: body(i, values), where values is a part of piece(i). Pieces are adjacent.
template <typename Piece, typename Body>
void read_by(const Bucket& bucket, const AlignedBuffer<float>& fused, const Piece& piece, const Body& body) {
    std::size_t i = 0;
    const auto split = [&](std::size_t first, std::span<const float> part) {
        while (!part.empty()) {
            const Segment here = piece(i).within(first, part.size());
            body(i, part.first(here.count));
            first += here.count;
            part = part.subspan(here.count);
            if (!part.empty()) ++i;
        }
    };
    bucket.passes->read(fused, std::ref(split)); // a step allocates nothing
}

/// By the layout's tensors.
template <typename Body>
void read_by_tensor(const Bucket& bucket, const AlignedBuffer<float>& fused, const Body& body) {
    read_by(
        bucket, fused, [&](std::size_t i) { return bucket.layout.whole_tensor(i); }, body);
}

/// By its segments.
template <typename Body>
void read_by_segment(const Bucket& bucket, const AlignedBuffer<float>& fused, const Body& body) {
    read_by(
        bucket, fused, [&](std::size_t i) { return bucket.layout.segments()[i]; }, body);
}

/// Cuts tensors into the buckets that they are exchanged in, from the last tensor to the first, the order in which a
/// backward pass usually finishes them: as many in each as fit into `bucket_size` elements, at least one. 0: all in
/// one. Every bucket is large enough that each rank has elements to serve, with this number of ranks or, up to 1024,
/// with another one to which a save moves.
inline std::vector<std::vector<const Tensor*>> cut_into_buckets(const std::vector<const Tensor*>& tensors,
                                                                std::uint64_t bucket_size, std::size_t ranks) {
    if (bucket_size == 0 || tensors.empty()) return {tensors};
    const std::size_t least = std::max<std::size_t>(ranks, 1024);
    std::vector<std::vector<const Tensor*>> buckets;
    std::uint64_t filled = 0;
    for (std::size_t i = tensors.size(); i-- > 0;) {
        if (buckets.empty() || (filled >= least && filled + tensors[i]->count > bucket_size)) {
            buckets.emplace_back();
            filled = 0;
        }
        buckets.back().push_back(tensors[i]);
        filled += tensors[i]->count;
    }
    if (buckets.size() > 1 && filled < least) {
        const std::vector<const Tensor*> rest = std::move(buckets.back());
        buckets.pop_back();
        buckets.back().insert(buckets.back().end(), rest.begin(), rest.end());
    }
    for (std::vector<const Tensor*>& bucket : buckets) std::ranges::reverse(bucket);
    return buckets;
}

} // namespace onebit
