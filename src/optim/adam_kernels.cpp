// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/adam_kernels.hpp"

#include <cmath>

namespace onebit {

void update_moments(const float* gradients, float* m, float* v, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) {
        const float g = gradients[i];
        m[i] = betas.beta1 * m[i] + betas.one_minus_beta1 * g;
        v[i] = betas.beta2 * v[i] + betas.one_minus_beta2 * (g * g);
    }
}

void update_momentum(const float* gradients, float* m, std::size_t count, const AdamBetas& betas) {
    for (std::size_t i = 0; i < count; ++i) m[i] = betas.beta1 * m[i] + betas.one_minus_beta1 * gradients[i];
}

void update_parameters(float* parameters, const float* m, const float* v, std::size_t count, const AdamUpdate& update) {
    for (std::size_t i = 0; i < count; ++i) {
        const float direction = m[i] * update.correct_m / (std::sqrt(v[i] * update.correct_v) + update.eps);
        parameters[i] -= update.lr * (direction + update.weight_decay * parameters[i]);
    }
}

} // namespace onebit
