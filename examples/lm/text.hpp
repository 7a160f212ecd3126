// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The text: read once, by rank 0, and cut into a part to train on and a tail to evaluate on.

#ifndef ONEBIT_EXAMPLES_LM_TEXT_HPP
#define ONEBIT_EXAMPLES_LM_TEXT_HPP

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace lm {

using Bytes = std::span<const std::uint8_t>;

// Rank 0 reads the file and sends it to all, so that only its host needs it. Collective. Every rank gets the text, or
// every rank gets nothing and rank 0 has said why on stderr: the file is missing, unreadable or under `min_bytes`.
std::vector<std::uint8_t> read_text(const std::string& path, std::size_t min_bytes, MPI_Comm comm);

// Where the held-out tail begins.
std::size_t held_out_begin(std::size_t text_bytes);

// Picks random examples from a shard of the text. The same seed picks the same examples.
class Sampler {
  public:
    Sampler(Bytes shard, std::size_t example_bytes, std::uint64_t seed)
        : shard_(shard), example_bytes_(example_bytes), random_(seed) {}

    void next(std::span<const std::uint8_t*> examples) {
        for (const std::uint8_t*& example : examples) {
            example = shard_.data() + random_() % (shard_.size() - example_bytes_ + 1);
        }
    }

  private:
    Bytes shard_;
    std::size_t example_bytes_;
    std::mt19937_64 random_;
};

} // namespace lm

#endif // ONEBIT_EXAMPLES_LM_TEXT_HPP
