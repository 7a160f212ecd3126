// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' arithmetic, element by element, as in docs/OPTIMIZERS.md. Every other version is compared with it,
// bit for bit. It also runs where no vector instructions are known.

#include <algorithm>

#include "compress/sign/arithmetic.hpp"
#include "compress/sign/block_sum.hpp"
#include "optim/kernels/arithmetic.hpp"
#include "optim/kernels/kernels.hpp"

namespace onebit {
namespace {

void adam(const float* gradients, float factor, float* m, float* v, float* parameters, std::size_t count,
          const AdamBetas& betas, const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = rounded::multiply(gradients[i], factor);
        m[i] = first_moment(g, m[i], betas);
        v[i] = second_moment(g, v[i], betas);
        parameters[i] = stepped(parameters[i], update.lr, adam_direction(m[i], v[i], parameters[i], update));
    }
}

void moments(const float* gradients, float factor, float* m, float* v, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = rounded::multiply(gradients[i], factor);
        m[i] = first_moment(g, m[i], betas);
        v[i] = second_moment(g, v[i], betas);
    }
}

void momentum(const float* gradients, float factor, float* m, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) m[i] = first_moment(rounded::multiply(gradients[i], factor), m[i], betas);
}

void weighted_momentum(const float* gradients, float factor, const float* precondition, float* m, std::size_t count,
                       const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = weighted_gradient(rounded::multiply(gradients[i], factor), precondition[i], betas);
        m[i] = first_moment(g, m[i], betas);
    }
}

void unweigh(const float* values, const float* v, std::size_t count, const AdamUpdate& update, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = unweighted_gradient(values[i], v[i], update);
}

void gather_masked(const float* gradients, float factor, const float* precondition, float* sums, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        sums[i] = gathered_if_masked(rounded::multiply(gradients[i], factor), precondition[i], sums[i]);
    }
}

void direction(const float* m, const float* v, const float* parameters, std::size_t count, const AdamUpdate& update,
               float* u) {
    for (std::size_t i = 0; i < count; ++i) u[i] = adam_direction(m[i], v[i], parameters[i], update);
}

void invert_denominator(const float* v, std::size_t count, const AdamUpdate& update, float* precondition) {
    for (std::size_t i = 0; i < count; ++i) precondition[i] = rounded::divide(1.0F, denominator(v[i], update));
}

void frozen_direction(const float* m, const float* precondition, const float* parameters, std::size_t count,
                      const AdamUpdate& update, float* u) {
    for (std::size_t i = 0; i < count; ++i) {
        u[i] = preconditioned_direction(m[i], precondition[i], parameters[i], update);
    }
}

void frozen_update(const float* m, const float* precondition, float* parameters, std::size_t count,
                   const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        const float u = preconditioned_direction(m[i], precondition[i], parameters[i], update);
        parameters[i] = stepped(parameters[i], update.lr, u);
    }
}

void exchanged_update(const float* m, float* parameters, std::size_t count, const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        parameters[i] = stepped(parameters[i], update.lr, exchanged_direction(m[i], parameters[i], update));
    }
}

void descend(const float* u, float step, float* parameters, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) parameters[i] = stepped(parameters[i], step, u[i]);
}

void refresh(const float* m, const float* m_before, const float* precondition, float* v_fresh, std::size_t count,
             const AdamBetas& betas, const AdamUpdate& update, float* ratios) {
    for (std::size_t i = 0; i < count; ++i) {
        v_fresh[i] = fresh_moment(m_before[i], m[i], v_fresh[i], betas);
        ratios[i] = rounded::multiply(precondition[i], denominator(v_fresh[i], update));
    }
}

void drift(const float* gradients, float factor, const float* m, const float* precondition, const float* parameters,
           const float* anchor, std::size_t count, const AdamBetas& betas, const AdamUpdate& update, bool of_momentum,
           float* out) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = rounded::multiply(gradients[i], factor);
        out[i] = of_momentum ? drift_of_momentum(g, m[i], precondition[i], parameters[i], anchor[i], betas, update)
                             : drift_of_update(g, m[i], precondition[i], parameters[i], anchor[i], betas, update);
    }
}

void rejoin(const float* average, const float* precondition, float decay, float* anchor, float* parameters,
            std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        anchor[i] = rejoined(anchor[i], average[i], precondition == nullptr ? 1.0F : precondition[i], decay);
        parameters[i] = anchor[i];
    }
}

void multiply(const float* values, float factor, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = saturated_product(factor, values[i]);
}

double sum_squares(const float* values, std::size_t count) {
    float lanes[kLanes] = {};
    for (std::size_t i = 0; i < count; ++i) lanes[i % kLanes] += values[i] * values[i];
    const float sum = sum_of_lanes(lanes);
    return is_trusted(sum) ? sum : sum_in_double(values, count, ONEBIT_SCALE_L2);
}

float least(const float* values, std::size_t count) {
    return *std::min_element(values, values + count);
}

void sketch(const float* values, std::size_t count, std::uint64_t seed, float* buckets) {
    for (std::size_t i = 0; i < count; ++i) buckets[sketch_bucket(seed, i)] += sketch_addend(seed, i, values[i]);
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
