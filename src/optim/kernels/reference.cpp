// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' arithmetic, element by element, as docs/OPTIMIZERS.md words it. What every other version is compared
// with, bit for bit; also what runs where no vector instructions are known.

#include <algorithm>
#include <bit>
#include <cmath>

#include "optim/kernels/kernels.hpp"

namespace onebit {
namespace {

void update_moments(float g, float& m, float& v, const AdamBetas& betas) {
    m = betas.beta1 * m + betas.one_minus_beta1 * g;
    v = betas.beta2 * v + betas.one_minus_beta2 * (g * g);
}

float denominator(float v, const AdamUpdate& update) {
    return std::sqrt(v * update.correct_v) + update.eps;
}

void adam(const float* gradients, float factor, float* m, float* v, float* parameters, std::size_t count,
          const AdamBetas& betas, const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        update_moments(gradients[i] * factor, m[i], v[i], betas);
        const float direction = m[i] * update.correct_m / denominator(v[i], update);
        parameters[i] -= update.lr * (direction + update.weight_decay * parameters[i]);
    }
}

void moments(const float* gradients, float factor, float* m, float* v, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) update_moments(gradients[i] * factor, m[i], v[i], betas);
}

void momentum(const float* gradients, float factor, float* m, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) {
        m[i] = betas.beta1 * m[i] + betas.one_minus_beta1 * (gradients[i] * factor);
    }
}

void direction(const float* m, const float* v, const float* parameters, std::size_t count, const AdamUpdate& update,
               float* u) {
    for (std::size_t i = 0; i < count; ++i) {
        u[i] = m[i] * update.correct_m / denominator(v[i], update) + update.weight_decay * parameters[i];
    }
}

void invert_denominator(const float* v, std::size_t count, const AdamUpdate& update, float* precondition) {
    for (std::size_t i = 0; i < count; ++i) precondition[i] = 1.0F / denominator(v[i], update);
}

void frozen_direction(const float* m, const float* precondition, const float* parameters, std::size_t count,
                      const AdamUpdate& update, float* u) {
    for (std::size_t i = 0; i < count; ++i) {
        u[i] = m[i] * update.correct_m * precondition[i] + update.weight_decay * parameters[i];
    }
}

void frozen_update(const float* m, const float* precondition, float* parameters, std::size_t count,
                   const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        const float direction = m[i] * update.correct_m * precondition[i];
        parameters[i] -= update.lr * (direction + update.weight_decay * parameters[i]);
    }
}

void descend(const float* u, float step, float* parameters, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) parameters[i] -= step * u[i];
}

void refresh(const float* m, const float* m_before, const float* precondition, float* v_fresh, std::size_t count,
             const AdamBetas& betas, const AdamUpdate& update, float* ratios) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = (m[i] - betas.beta1 * m_before[i]) / betas.one_minus_beta1;
        v_fresh[i] = betas.beta2 * v_fresh[i] + betas.one_minus_beta2 * (g * g);
        ratios[i] = precondition[i] * denominator(v_fresh[i], update);
    }
}

void drift(const float* parameters, const float* anchor, const float* precondition, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = (parameters[i] - anchor[i]) / precondition[i];
}

void rejoin(const float* average, const float* precondition, float decay, float* anchor, float* parameters,
            std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        anchor[i] = anchor[i] + average[i] * precondition[i] - decay * anchor[i];
        parameters[i] = anchor[i];
    }
}

void multiply(const float* values, float factor, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = factor * values[i];
}

float sum_squares(const float* values, std::size_t count) {
    constexpr std::size_t kLanes = 32;
    float lanes[kLanes] = {};
    for (std::size_t i = 0; i < count; ++i) lanes[i % kLanes] += values[i] * values[i];
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    }
    return lanes[0];
}

float least(const float* values, std::size_t count) {
    return *std::min_element(values, values + count);
}

void sketch(const float* values, std::size_t count, std::uint64_t seed, float* buckets) {
    for (std::size_t i = 0; i < count; ++i) {
        const bool plus = (sketch_signs(seed, i / 32) >> (i % 32) & 1) != 0;
        buckets[(seed * 32 + i) % kSketchBuckets] += plus ? values[i] : -values[i];
    }
}

// ---- 16-bit formats ----

void widen_float16(const std::uint16_t* values, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t half = values[i];
        const std::uint32_t sign = (half & 0x8000U) << 16;
        const std::uint32_t shifted = (half & 0x7fffU) << 13; // exponent and mantissa where float32 has them
        std::uint32_t magnitude = shifted + (112U << 23);     // the exponents' biases differ by 127 - 15
        if ((half & 0x7fffU) >= 0x7c00U) magnitude = shifted + (224U << 23); // infinity, NaN
        if ((half & 0x7fffU) < 0x0400U) { // subnormal: 1.mantissa * 2^-14, less the 1 that it doesn't have
            magnitude = std::bit_cast<std::uint32_t>(std::bit_cast<float>(shifted + (113U << 23)) - 0x1p-14F);
        }
        out[i] = std::bit_cast<float>(sign | magnitude);
    }
}

void widen_bfloat16(const std::uint16_t* values, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(values[i]) << 16);
}

void narrow_float16(const float* values, std::size_t count, std::uint16_t* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(values[i]);
        const std::uint32_t magnitude = bits & 0x7fffffffU;
        const std::uint32_t odd = magnitude >> 13 & 1U;
        std::uint32_t half = (magnitude - (112U << 23) + 0xfffU + odd) >> 13; // may carry into the exponent, rightly
        if (magnitude < (113U << 23)) { // subnormal: the addition rounds at the bit that counts 2^-24
            half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - (126U << 23);
        }
        if (magnitude >= 0x477ff000U) half = 0x7c00U; // from 65520 on
        if (magnitude > 0x7f800000U) half = 0x7e00U;  // NaN
        out[i] = static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | half);
    }
}

void narrow_bfloat16(const float* values, std::size_t count, std::uint16_t* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(values[i]);
        const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
        const std::uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
        out[i] = static_cast<std::uint16_t>(nan ? bits >> 16 | 0x40U : rounded >> 16);
    }
}

} // namespace

const OptimKernels& reference_optim_kernels() {
    static constexpr OptimKernels kKernels = {
        "reference",
#define ONEBIT_OPTIM_KERNEL(result, kernel, parameters) kernel,
#include "optim/kernels/kernels.def"
#undef ONEBIT_OPTIM_KERNEL
    };
    return kKernels;
}

} // namespace onebit
