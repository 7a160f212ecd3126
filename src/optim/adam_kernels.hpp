// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace onebit {

/// The element-wise parts of Adam, as its paper words them; one pass each. The fused passes of 1-bit Adam (encode
/// inside the moment update, decode inside the parameter update) will join them here.

struct AdamBetas {
    float beta1 = 0;
    float one_minus_beta1 = 0;
    float beta2 = 0;
    float one_minus_beta2 = 0;
};

/// What a parameter update needs besides the moments: m and v are multiplied by their corrections first.
struct AdamUpdate {
    float lr = 0;
    float eps = 0;
    float weight_decay = 0;
    float correct_m = 1;
    float correct_v = 1;
};

/// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2.
void update_moments(const float* gradients, float* m, float* v, std::size_t count, const AdamBetas& betas);

/// m = beta1 m + (1 - beta1) g.
void update_momentum(const float* gradients, float* m, std::size_t count, const AdamBetas& betas);

/// x -= lr (m / (sqrt(v) + eps) + weight_decay x).
void update_parameters(float* parameters, const float* m, const float* v, std::size_t count, const AdamUpdate& update);

} // namespace onebit
