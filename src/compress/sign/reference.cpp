// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The sign codec, element by element, as docs/WIRE_FORMAT.md describes it. Every other version is compared with this
// one, bit for bit. It also runs where no vector instructions are known.

#include <bit>
#include <cmath>

#include "compress/sign/kernels.hpp"
#include "core/partition.hpp"
#include "core/rounded.hpp"
#include "numeric/mean.hpp"

namespace onebit {
namespace {

bool bit_at(const std::uint32_t* words, std::size_t i) {
    return (words[i / 32] >> (i % 32) & 1) != 0;
}

void put_bit(std::uint32_t* words, std::size_t i, bool bit) {
    if (i % 32 == 0) words[i / 32] = 0;
    words[i / 32] |= static_cast<std::uint32_t>(bit) << (i % 32);
}

/// +s for x >= 0 (both zeros), else -s.
float signed_scale(float x, float s) {
    return x >= 0 ? s : -s;
}

/// A sum in 32 lanes, combined in a fixed tree: the same result whatever the vector length.
class LaneSum {
  public:
    explicit LaneSum(onebit_scale_t scale) : squares_(scale == ONEBIT_SCALE_L2) {}

    void add(std::size_t i, float x) { lanes_[i % kLanes] += squares_ ? x * x : std::fabs(x); }

    float total() { return sum_of_lanes(lanes_); }

  private:
    bool squares_;
    float lanes_[kLanes] = {};
};

/// The step that worker and server share: corrects `value` by the error of the last message, stores and encodes it.
void correct_and_encode(std::size_t i, float value, const float* before, float old_scale, float* corrected,
                        const std::uint32_t* valid, LaneSum& sum, std::uint32_t* bits) {
    const float error = before[i] - signed_scale(before[i], old_scale);
    const float c = valid == nullptr || bit_at(valid, i) ? value + error : 0.0F;
    corrected[i] = c;
    sum.add(i, c);
    put_bit(bits, i, c >= 0);
}

float encode(const float* values, const float* before, float old_scale, float* corrected, Stores,
             const std::uint32_t* valid, std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    LaneSum sum(scale);
    for (std::size_t i = 0; i < count; ++i) {
        correct_and_encode(i, values[i], before, old_scale, corrected, valid, sum, bits);
    }
    return sum.total();
}

float blend_encode(const float* inputs, const Blend& blend, const std::uint32_t* last_bits, float last_scale,
                   const float* before, float old_scale, float* corrected, Stores, const std::uint32_t* valid,
                   std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    LaneSum sum(scale);
    std::uint32_t last_word = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (i % 32 == 0) last_word = last_bits[i / 32]; // before it may be overwritten
        const float last = (last_word >> (i % 32) & 1) != 0 ? last_scale : -last_scale;
        float input = inputs[i] * blend.factor;
        if (blend.weights != nullptr) input = rounded::clamp(input * blend.weights[i], blend.bound);
        const float value = blend.keep * last + blend.take * input;
        correct_and_encode(i, value, before, old_scale, corrected, valid, sum, bits);
    }
    return sum.total();
}

float mean_encode(const float* const* parts, std::size_t part_count, float share, const float* before, float old_scale,
                  float* corrected, Stores, const std::uint32_t* valid, std::size_t count, onebit_scale_t scale,
                  std::uint32_t* bits) {
    LaneSum sum(scale);
    for (std::size_t i = 0; i < count; ++i) {
        correct_and_encode(i, mean_of(parts, part_count, i, share), before, old_scale, corrected, valid, sum, bits);
    }
    return sum.total();
}

float average_of(const std::uint32_t* const* messages, std::size_t ranks, std::size_t first_word,
                 std::size_t scale_word, float share, std::size_t i) {
    float value = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        const float magnitude = std::bit_cast<float>(messages[r][scale_word]) * share;
        value += bit_at(messages[r] + first_word, i) ? magnitude : -magnitude;
    }
    return value;
}

float average_encode(const std::uint32_t* const* messages, std::size_t ranks, std::size_t first_word,
                     std::size_t scale_word, float share, const float* before, float old_scale, float* corrected,
                     Stores, const std::uint32_t* valid, std::size_t count, onebit_scale_t scale, std::uint32_t* bits) {
    LaneSum sum(scale);
    for (std::size_t i = 0; i < count; ++i) {
        const float value = average_of(messages, ranks, first_word, scale_word, share, i);
        correct_and_encode(i, value, before, old_scale, corrected, valid, sum, bits);
    }
    return sum.total();
}

void average(const std::uint32_t* const* messages, std::size_t ranks, std::size_t first_word, std::size_t scale_word,
             float share, std::size_t count, Stores /*stores*/, float* values) {
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = average_of(messages, ranks, first_word, scale_word, share, i);
    }
}

void decode(const std::uint32_t* bits, float scale, const std::uint32_t* valid, std::size_t count, Stores /*stores*/,
            float* values) {
    for (std::size_t i = 0; i < count; ++i) {
        const float value = bit_at(bits, i) ? scale : -scale;
        values[i] = valid == nullptr || bit_at(valid, i) ? value : 0.0F;
    }
}

} // namespace

const SignKernels& reference_sign_kernels() {
    static constexpr SignKernels kKernels = {
        "reference",
#define ONEBIT_SIGN_KERNEL(result, kernel, parameters) kernel,
#include "compress/sign/kernels.def"
#undef ONEBIT_SIGN_KERNEL
    };
    return kKernels;
}

} // namespace onebit
