// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/partition.hpp"

namespace onebit {

/// Where the elements of consecutive chunks lie in an error's buffer, in any memory: one chunk after the other, each
/// from a multiple of `alignment` on. The default alignment is enough for stores of vectors.
class ErrorPlaces {
  public:
    explicit ErrorPlaces(std::span<const Chunk> chunks, std::size_t alignment = kWordElements)
        : chunks_(chunks.begin(), chunks.end()) {
        for (const Chunk& chunk : chunks_) {
            if (chunk.count > 0) elements_ = ceil_divide(elements_, alignment) * alignment;
            first_element_.push_back(elements_);
            elements_ += chunk.count;
        }
    }

    std::span<const Chunk> chunks() const { return chunks_; }
    /// The first element of a chunk's block: in the buffer, and in an array of the chunks' elements without gaps.
    std::size_t element_index(const Chunk& chunk, std::size_t block) const {
        return first_element_[chunk.index - chunks_.front().index] + block * kBlockElements;
    }
    std::size_t packed_index(const Chunk& chunk, std::size_t block) const {
        return chunk.begin - chunks_.front().begin + block * kBlockElements;
    }
    /// The number of elements of the buffer, and of the chunks.
    std::size_t elements() const { return elements_; }
    std::size_t packed_elements() const { return chunks_.back().begin + chunks_.back().count - chunks_.front().begin; }

  private:
    std::vector<Chunk> chunks_;
    std::vector<std::size_t> first_element_;
    std::size_t elements_ = 0;
};

} // namespace onebit
