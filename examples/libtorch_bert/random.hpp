// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Random numbers that depend only on their purpose: not on the number of ranks, not on the numbers drawn before, not on
// the standard library (whose distributions differ).

#ifndef ONEBIT_EXAMPLES_BERT_RANDOM_HPP
#define ONEBIT_EXAMPLES_BERT_RANDOM_HPP

#include <cstdint>

namespace bert {

// SplitMix64.
class Random {
  public:
    // The stream number `stream` of `seed`.
    Random(std::uint64_t seed, std::uint64_t stream) : state_(seed * 0x9e3779b97f4a7c15u) {
        state_ = next() + stream * 0xd1342543de82ef95u;
    }

    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    // 0 to bound - 1. Bounds are small here, so the bias of % is too small to matter.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  private:
    std::uint64_t state_;
};

} // namespace bert

#endif // ONEBIT_EXAMPLES_BERT_RANDOM_HPP
