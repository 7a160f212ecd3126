// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/stored_error.hpp"

#include <algorithm>

namespace onebit {

void StoredError::get_error(float* values) const {
    for (const Chunk& chunk : chunks()) {
        std::copy_n(error.data() + element_index(chunk, 0), chunk.count, values + packed_index(chunk, 0));
    }
}

void StoredError::set_error(const float* values) {
    for (const Chunk& chunk : chunks()) {
        std::copy_n(values + packed_index(chunk, 0), chunk.count, error.data() + element_index(chunk, 0));
    }
    zero_masked();
}

void StoredError::set_mask(std::span<const std::uint32_t> mask) {
    mask_ = mask;
    zero_masked();
}

void StoredError::zero_masked() {
    if (mask_.empty()) return;
    for (const Chunk& chunk : chunks()) {
        float* const of_chunk = error.data() + element_index(chunk, 0);
        for (std::size_t i = 0; i < chunk.count; ++i) {
            if (!takes_part(mask_.data(), chunk.begin + i)) of_chunk[i] = 0;
        }
    }
}

} // namespace onebit
