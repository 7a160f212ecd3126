// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "compress/codec.hpp"
#include "core/partition.hpp"
#include "transport/transport.hpp"

namespace onebit {

/// Part of a chunk's message.
using WordsOf = std::function<WordRange(const Chunk&)>;

/// How a buffer is cut into one chunk for each rank, rank j serving chunk j, and how the chunks' messages lie in
/// memory: a row each, one behind the other.
class MessageLayout {
  public:
    MessageLayout(const Codec& codec, std::vector<Chunk> chunks, std::size_t rank)
        : codec_(codec), chunks_(std::move(chunks)), rank_(rank) {}

    const Codec& codec() const { return codec_; }
    const std::vector<Chunk>& chunks() const { return chunks_; }
    std::size_t rank() const { return rank_; }
    const Chunk& own_chunk() const { return chunks_[rank_]; }
    bool on_device() const { return &codec_.memory() != &host_memory(); }

    /// Words of all rows.
    std::size_t words() const {
        std::size_t words = 0;
        for (const Chunk& chunk : chunks_) words += codec_.row_words(chunk);
        return words;
    }
    /// By chunk, where its row begins; the first one begins at `first`.
    std::vector<std::uint32_t*> rows_from(std::uint32_t* first) const {
        std::vector<std::uint32_t*> rows;
        for (const Chunk& chunk : chunks_) {
            rows.push_back(first);
            first += codec_.row_words(chunk);
        }
        return rows;
    }

    /// Some words of a chunk's message, to a peer or from it.
    Part part(std::size_t peer, const Chunk& chunk, const std::uint32_t* message, const WordRange& words) const {
        return {.peer = static_cast<int>(peer),
                .data = const_cast<std::uint32_t*>(message) + words.begin,
                .bytes = words.count * sizeof(std::uint32_t),
                .on_device = on_device(),
                .pitch = codec_.row_words(chunk) * sizeof(std::uint32_t)};
    }

  private:
    const Codec& codec_;
    std::vector<Chunk> chunks_;
    std::size_t rank_;
};

} // namespace onebit
