// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Deterministic test data: the same values for the same (seed, rank, step) on every machine and in every process, so
// that any rank can make any other rank's input for itself. Own generator, as <random>'s distributions differ between
// standard libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace onebit_test {

class Random {
  public:
    Random(std::uint64_t seed, int rank, std::uint64_t step) : state_(seed * 0x9e3779b97f4a7c15ULL) {
        state_ = next() ^ (static_cast<std::uint64_t>(rank) + 1) * 0xd1342543de82ef95ULL;
        state_ = next() ^ (step + 1) * 0xaf251af3b0f025b5ULL;
    }

    std::uint64_t next() { // SplitMix64
        state_ += 0x9e3779b97f4a7c15ULL;
        std::uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; } // in (0, 1)

    // Of mean 0 and variance 1, within 4.9 of 0: the sum of eight uniform numbers of 16 bits, and of a ninth below them
    // that fills the significand. Tests make so many that logarithms and sines took a quarter of their time.
    double gaussian() {
        constexpr std::uint64_t every_other = 0x0000ffff0000ffff;
        const std::uint64_t a = next(), b = next();
        const std::uint64_t pairs =
            (a & every_other) + (a >> 16 & every_other) + (b & every_other) + (b >> 16 & every_other);
        const double sum = static_cast<double>((pairs >> 32) + (pairs & 0xffffffff));
        constexpr double scale = 1.224744871391589 / 65536; // each of the eight has the variance 1/12
        return (sum - 8 * 32767.5 + uniform() - 0.5) * scale;
    }

  private:
    std::uint64_t state_;
};

enum class Kind {
    gaussian,     // sigma 1
    heavy_tailed, // one element in a hundred a hundred times larger
    zeros,        // exact zeros and negative zeros among Gaussian values
    tiny,         // about 1e-25: its square is too small for a float
    huge          // about 1e30: its square is too large for a float
};

inline const char* name_of(Kind kind) {
    const char* const names[] = {"gaussian", "heavy-tailed", "zeros", "tiny", "huge"};
    return names[static_cast<int>(kind)];
}

inline std::vector<float> make_data(Kind kind, std::size_t count, std::uint64_t seed, int rank, std::uint64_t step) {
    Random random(seed * 8 + static_cast<std::uint64_t>(kind), rank, step);
    std::vector<float> data(count);
    for (float& x : data) {
        double value = random.gaussian();
        const double choice = kind == Kind::heavy_tailed || kind == Kind::zeros ? random.uniform() : 1;
        if (kind == Kind::heavy_tailed && choice < 0.01) value *= 100;
        if (kind == Kind::zeros && choice < 0.4) value = choice < 0.2 ? 0.0 : -0.0;
        if (kind == Kind::tiny) value *= 1e-25;
        if (kind == Kind::huge) value *= 1e30;
        x = static_cast<float>(value);
    }
    return data;
}

// Zeros of different signs count as different.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

} // namespace onebit_test
