// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/rounded.hpp"
#include "optim/kernels/kernels.hpp"

/// The optimizers' code for CPU and GPU: each formula of docs/OPTIMIZERS.md for one element.
namespace onebit {

// ---- Bounds ----

/// The nearest finite float: an infinity, which stands for an overflow, becomes the largest one. A NaN stays one.
ONEBIT_HOST_DEVICE inline float saturated(float x) {
    return rounded::clamp(x, FLT_MAX);
}

ONEBIT_HOST_DEVICE inline float saturated_product(float a, float b) {
    return saturated(rounded::multiply(a, b));
}

// ---- Moments ----

ONEBIT_HOST_DEVICE inline float first_moment(float g, float m, const AdamBetas& betas) {
    return rounded::add(rounded::multiply(betas.beta1, m), rounded::multiply(betas.one_minus_beta1, g));
}

ONEBIT_HOST_DEVICE inline float second_moment(float g, float v, const AdamBetas& betas) {
    return rounded::add(rounded::multiply(betas.beta2, v),
                        rounded::multiply(betas.one_minus_beta2, rounded::multiply(g, g)));
}

/// The gradient that turns m_before into m. It may overflow: no rank has had this gradient.
ONEBIT_HOST_DEVICE inline float gradient_between(float m_before, float m, const AdamBetas& betas) {
    return rounded::divide(rounded::subtract(m, rounded::multiply(betas.beta1, m_before)), betas.one_minus_beta1);
}

/// 1-bit LAMB's fresh variance.
ONEBIT_HOST_DEVICE inline float fresh_moment(float m_before, float m, float v_fresh, const AdamBetas& betas) {
    return saturated(second_moment(gradient_between(m_before, m, betas), v_fresh, betas));
}

// ---- Updates: each result is finite where all arguments are ----

ONEBIT_HOST_DEVICE inline float denominator(float v, const AdamUpdate& update) {
    return rounded::add(rounded::sqrt(rounded::multiply(v, update.correct_v)), update.eps);
}

/// Both u and the decay may have overflowed, with opposite signs.
ONEBIT_HOST_DEVICE inline float with_decay(float u, float parameter, const AdamUpdate& update) {
    return saturated(rounded::add(saturated(u), rounded::multiply(update.weight_decay, parameter)));
}

/// u of Adam.
ONEBIT_HOST_DEVICE inline float adam_direction(float m, float v, float parameter, const AdamUpdate& update) {
    const float u = rounded::divide(rounded::multiply(m, update.correct_m), denominator(v, update));
    return with_decay(u, parameter, update);
}

/// The same with the inverse of a frozen denominator.
ONEBIT_HOST_DEVICE inline float preconditioned_direction(float m, float precondition, float parameter,
                                                         const AdamUpdate& update) {
    return with_decay(rounded::multiply(rounded::multiply(m, update.correct_m), precondition), parameter, update);
}

/// A gradient over the frozen denominator, as an update by this gradient alone; at most the bound for gradients of the
/// warm-up.
ONEBIT_HOST_DEVICE inline float weighted_gradient(float g, float precondition, const AdamBetas& betas) {
    return rounded::clamp(rounded::multiply(g, precondition), betas.most_weighted);
}

/// The gradient that a weighted gradient stands for, where v is not frozen yet.
ONEBIT_HOST_DEVICE inline float unweighted_gradient(float weighted, float v, const AdamUpdate& update) {
    return saturated_product(weighted, denominator(v, update));
}

/// Adds a gradient to the sum of a masked element, whose preconditioner is 0. Sums of other elements stay.
ONEBIT_HOST_DEVICE inline float gathered_if_masked(float g, float precondition, float sum) {
    return precondition == 0 ? rounded::clamp(rounded::add(sum, g), kMostGathered) : sum;
}

/// The uncorrected v that a preconditioner was made of, times `ratio`; 0 for a masked element's preconditioner, 0.
ONEBIT_HOST_DEVICE inline float thawed_variance(float precondition, float ratio, const AdamUpdate& update) {
    if (!(precondition > 0)) return 0;
    const float root = rounded::subtract(rounded::divide(1, precondition), update.eps);
    if (!(root > 0)) return 0;
    const float corrected = rounded::multiply(rounded::multiply(root, ratio), root);
    return rounded::divide(rounded::clamp(corrected, FLT_MAX / 2), update.correct_v);
}

/// The momentum that makes update u with v; 0 where v is 0. Like v, it stays finite once corrected.
ONEBIT_HOST_DEVICE inline float thawed_momentum(float u, float v, const AdamUpdate& update) {
    if (!(v > 0)) return 0;
    const float corrected = rounded::multiply(rounded::multiply(u, update.correct_m), denominator(v, update));
    return rounded::divide(rounded::clamp(corrected, FLT_MAX / 2), update.correct_m);
}

/// Betas with which a momentum becomes the weighted gradient, without the old momentum.
ONEBIT_HOST_DEVICE inline AdamBetas keeping_nothing(AdamBetas betas) {
    betas.beta1 = 0;
    betas.one_minus_beta1 = 1;
    return betas;
}

/// The update where exchanged values are preconditioned already.
ONEBIT_HOST_DEVICE inline float exchanged_direction(float u, float parameter, const AdamUpdate& update) {
    return with_decay(rounded::multiply(u, update.correct_m), parameter, update);
}

/// A parameter after a step in direction u.
ONEBIT_HOST_DEVICE inline float stepped(float parameter, float step, float u) {
    return saturated(rounded::subtract(parameter, rounded::multiply(step, u)));
}

/// 0/1 Adam's local change after one more step, in units of momentum. A masked element's preconditioner is 0; all
/// others are normal numbers.
ONEBIT_HOST_DEVICE inline float drift_of_momentum(float g, float m, float precondition, float parameter, float anchor,
                                                  const AdamBetas& betas, const AdamUpdate& update) {
    const float u = preconditioned_direction(first_moment(g, m, betas), precondition, parameter, update);
    const float divisor = precondition > FLT_MIN ? precondition : FLT_MIN;
    return saturated(rounded::divide(rounded::subtract(stepped(parameter, update.lr, u), anchor), divisor));
}

/// The same in units of the update.
ONEBIT_HOST_DEVICE inline float drift_of_update(float g, float m, float precondition, float parameter, float anchor,
                                                const AdamBetas& betas, const AdamUpdate& update) {
    const float m_new = first_moment(weighted_gradient(g, precondition, betas), m, betas);
    const float u = exchanged_direction(m_new, parameter, update);
    return saturated(rounded::subtract(stepped(parameter, update.lr, u), anchor));
}

/// The anchor at which the ranks meet.
ONEBIT_HOST_DEVICE inline float rejoined(float anchor, float average, float precondition, float decay) {
    const float moved = saturated(rounded::add(anchor, rounded::multiply(average, precondition)));
    return saturated(rounded::subtract(moved, rounded::multiply(decay, anchor)));
}

// ---- Sketches ----

/// Which bucket element i goes to.
ONEBIT_HOST_DEVICE inline std::size_t sketch_bucket(std::uint64_t seed, std::size_t i) {
    return (seed * 32 + i) % kSketchBuckets;
}

/// What element i adds to its bucket.
ONEBIT_HOST_DEVICE inline float sketch_addend(std::uint64_t seed, std::size_t i, float value) {
    return (sketch_signs(seed, i / 32) >> (i % 32) & 1) != 0 ? value : -value;
}

} // namespace onebit
