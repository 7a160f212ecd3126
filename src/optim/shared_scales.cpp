// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/shared_scales.hpp"

#include <algorithm>
#include <cmath>

namespace onebit {

SharedScales::SharedScales(const std::vector<Bucket>& buckets, onebit_group_t group, Memory& memory)
    : by_block_(group == ONEBIT_GROUP_BLOCK), memory_(memory) {
    std::size_t most_segments = 0;
    std::size_t most_elements = 0;
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        most_segments = std::max(most_segments, bucket.layout.segments().size());
        most_elements = std::max(most_elements, bucket.layout.count());
    }
    found_.resize(most_segments);
    mask_ = AlignedBuffer<std::uint32_t>(ceil_divide(most_elements, kWordElements));
}

void SharedScales::look_at(const std::vector<Bucket>& buckets, const Passes::FactorOf& message_scale) {
    step_ratio_ = 1;
    tensor_ = 0;
    for (const Bucket& bucket : buckets) {
        if (!bucket.compresses) continue;
        find(bucket, message_scale);
        const std::span<const Segment> segments = bucket.layout.segments();
        if (!by_block_) {
            compare(segments);
            continue;
        }
        const std::span<const std::size_t> first = bucket.layout.first_segments();
        for (std::size_t block = 0; block + 1 < first.size(); ++block) {
            compare(segments.subspan(first[block], first[block + 1] - first[block]));
        }
    }
}

void SharedScales::find(const Bucket& bucket, const Passes::FactorOf& message_scale) {
    const std::span<const std::uint32_t> mask = bucket.allreduce->delivery().mask();
    if (!mask.empty()) memory_.copy(mask_.data(), mask.data(), mask.size_bytes());
    const auto is_masked = [&](std::size_t element) { return !mask.empty() && !takes_part(mask_.view(), element); };
    std::ranges::fill(found_, Found());
    std::size_t element = 0;
    read_by_segment(bucket, bucket.precondition, [&](std::size_t i, std::span<const float> precondition) {
        const double scale = message_scale(*bucket.layout.segments()[i].tensor);
        Found& found = found_[i];
        for (const float p : precondition) {
            if (is_masked(element++) || p <= 0) continue; // 0: a file may have it
            const double magnitude = scale / double{p};   // a momentum is about as large as its gradients: as D
            found.squares += magnitude * magnitude;
            found.least = found.count == 0 ? magnitude : std::min(found.least, magnitude);
            ++found.count;
        }
    });
}

/// Compares these elements' shared scale, their root mean square, with the least of them.
void SharedScales::compare(std::span<const Segment> sharing) {
    double squares = 0;
    std::size_t count = 0;
    for (const Segment& segment : sharing) {
        squares += found_[segment.index].squares;
        count += found_[segment.index].count;
    }
    if (count == 0) return;
    const double scale = std::sqrt(squares / static_cast<double>(count));
    for (const Segment& segment : sharing) {
        const Found& found = found_[segment.index];
        if (found.count == 0 || scale <= step_ratio_ * found.least) continue;
        step_ratio_ = scale / found.least;
        tensor_ = segment.tensor->number;
    }
}

} // namespace onebit
