// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/stored_error.hpp"

#include <algorithm>

namespace onebit {

void StoredError::reset() {
    floats_.fill_zero();
    halves_.fill_zero();
    bytes_.fill_zero();
    exponents_.fill_zero();
}

void StoredError::read(std::size_t first, std::size_t count, float* values) const {
    if (type_ == ONEBIT_INT8) {
        kernels_.widen_bytes(bytes_.data() + first, exponents_.data() + first / kScaledGroup, count, values);
    } else if (type_ == ONEBIT_BFLOAT16) {
        kernels_.widen_bfloat16(halves_.data() + first, count, values);
    } else {
        std::copy_n(floats_.data() + first, count, values);
    }
}

/// Finite values stay finite.
void StoredError::write(std::size_t first, std::size_t count, const float* values) {
    if (type_ == ONEBIT_INT8) {
        kernels_.narrow_to_bytes(values, count, bytes_.data() + first, exponents_.data() + first / kScaledGroup);
    } else if (type_ == ONEBIT_BFLOAT16) {
        (void)kernels_.narrow_bfloat16(values, count, halves_.data() + first);
    } else {
        std::copy_n(values, count, floats_.data() + first);
    }
}

void StoredError::get_error(float* values) const {
    for (const Chunk& chunk : chunks()) {
        read(element_index(chunk, 0), chunk.count, values + packed_index(chunk, 0));
    }
}

void StoredError::set_error(const float* values) {
    for (const Chunk& chunk : chunks()) {
        write(element_index(chunk, 0), chunk.count, values + packed_index(chunk, 0));
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
        const std::size_t first = element_index(chunk, 0);
        for (std::size_t i = 0; i < chunk.count; ++i) {
            if (takes_part(mask_.data(), chunk.begin + i)) continue;
            if (type_ == ONEBIT_INT8) {
                std::uint8_t& exponent = exponents_[(first + i) / kScaledGroup];
                bytes_[first + i] = 0;
                if (exponent == kNotFinite) exponent = 1; // all bytes beside it are 0, too
            } else if (type_ == ONEBIT_BFLOAT16) {
                halves_[first + i] = 0;
            } else {
                floats_[first + i] = 0;
            }
        }
    }
}

} // namespace onebit
