// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Settings drawn from a seed, for tests of properties that hold for all settings. ONEBIT_SEEDS=10000 tries that many,
// ONEBIT_FIRST_SEED=S begins with seed S.
#pragma once

#include <onebit/onebit.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

inline std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Tries the seeds that the environment asks for, or so many, on any number of ranks; the first failure is the last.
template <typename TryOne>
void for_seeds(std::uint64_t otherwise, RankLog& log, const TryOne& try_one) {
    const std::uint64_t first = number_of("ONEBIT_FIRST_SEED", 1);
    const std::uint64_t end = first + number_of("ONEBIT_SEEDS", otherwise);
    const auto all_went_well = [&] {
        const int failed = log.failed();
        return log.same_on_all(&failed, sizeof failed) && failed == 0;
    };
    for (std::uint64_t seed = first; seed < end && all_went_well(); ++seed) try_one(seed);
}
inline std::vector<int> any_rank_counts() {
    std::vector<int> counts = rank_counts();
    for (const int more : {4, 8}) {
        if (can_have_ranks(more) && counts.front() != more) counts.push_back(more);
    }
    return counts;
}

// The same on every rank.
class Draws {
  public:
    explicit Draws(std::uint64_t seed) : engine_(seed) {}
    std::size_t below(std::size_t most) { return engine_() % most; }
    bool one_in(std::size_t n) { return below(n) == 0; }
    template <typename T>
    T one_of(std::initializer_list<T> choices) {
        return *(choices.begin() + below(choices.size()));
    }
    template <typename T>
    T enumerator(T last) { // from 0 on
        return static_cast<T>(below(static_cast<std::size_t>(last) + 1));
    }

  private:
    std::mt19937_64 engine_;
};

inline int color_of(int pattern, int rank, int ranks) {
    switch (pattern) {
        case 0:
            return rank / 2;
        case 1:
            return rank % 2;
        case 2:
            return rank / 4;
        case 3:
            return rank;
        case 4:
            return ONEBIT_LEVEL_NODE;
        default:
            return std::min(rank, ranks - 1 - rank);
    }
}

// The settings of a codec, in a config or in a level.
template <typename Config>
void draw_codec(Draws& draws, Config* config) {
    config->codec = draws.enumerator(draws.one_in(8) ? ONEBIT_CODEC_POWERSGD : ONEBIT_CODEC_RANDOMK);
    if (config->codec == ONEBIT_CODEC_SIGN) {
        config->scale = draws.enumerator(ONEBIT_SCALE_L1);
        config->group = draws.enumerator(ONEBIT_GROUP_BUFFER);
    }
    if (config->codec == ONEBIT_CODEC_TOPK || config->codec == ONEBIT_CODEC_RANDOMK || draws.one_in(40)) {
        config->kept = draws.one_of({0U, 1U, 7U, 64U, 128U});
        config->value_bits = draws.one_of({0U, 2U, 8U});
    }
    if (draws.one_in(3)) config->error_type = draws.one_of({ONEBIT_BFLOAT16, ONEBIT_INT8});
}

} // namespace onebit_test
