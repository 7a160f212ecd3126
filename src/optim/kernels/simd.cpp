// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The optimizers' kernels in Highway, compiled once per instruction set. The result is reference.cpp's bit for bit: the
// same operations in the same order, no fused multiply-add. The rest at the end of an array goes through the reference
// itself.

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <vector>

#include "compress/sign/arithmetic.hpp"
#include "compress/sign/block_sum.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "optim/kernels/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/kernels/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;
constexpr std::size_t kSumLanes = 32;
using Tag = hn::CappedTag<float, kSumLanes>;
using BitsTag = hn::RebindToUnsigned<Tag>;
using Vector = hn::Vec<Tag>;
using Bits = hn::Vec<BitsTag>;

constexpr std::size_t kVectorLanes = hn::MaxLanes(Tag());
constexpr std::size_t kRegisters = kSumLanes / kVectorLanes;

/// Calls body(i) for every whole vector; returns the number of their elements.
template <typename Body>
HWY_INLINE std::size_t for_each_vector(std::size_t count, const Body& body) {
    std::size_t i = 0;
    for (; i + kVectorLanes <= count; i += kVectorLanes) body(i);
    return i;
}

HWY_INLINE Vector load(const float* from) {
    prefetch_ahead(from);
    return hn::LoadU(Tag(), from);
}

HWY_INLINE void store(Vector v, float* to) {
    hn::StoreU(v, Tag(), to);
}

HWY_INLINE Vector set(float x) {
    return hn::Set(Tag(), x);
}

/// The smaller and the larger; if the second is a NaN, that NaN, whatever the instruction set does.
HWY_INLINE Vector lesser(Vector bound, Vector x) {
#if HWY_ARCH_X86
    return hn::Min(bound, x);
#else
    return hn::IfThenElse(hn::Lt(bound, x), bound, x);
#endif
}
HWY_INLINE Vector greater(Vector bound, Vector x) {
#if HWY_ARCH_X86
    return hn::Max(bound, x);
#else
    return hn::IfThenElse(hn::Gt(bound, x), bound, x);
#endif
}

/// arithmetic.hpp's.
HWY_INLINE Vector clamp(Vector x, Vector bound) {
    return lesser(bound, greater(hn::Neg(bound), x));
}
HWY_INLINE Vector saturated(Vector x) {
    return clamp(x, set(FLT_MAX));
}
HWY_INLINE Vector stepped(Vector x, Vector step, Vector u) {
    return saturated(hn::Sub(x, hn::Mul(step, u)));
}

/// AdamBetas in registers, and their operations.
struct Betas {
    explicit HWY_INLINE Betas(const AdamBetas& betas)
        : beta1(set(betas.beta1)),
          one_minus_beta1(set(betas.one_minus_beta1)),
          beta2(set(betas.beta2)),
          one_minus_beta2(set(betas.one_minus_beta2)) {}

    HWY_INLINE Vector first_moment(Vector g, Vector m) const {
        return hn::Add(hn::Mul(beta1, m), hn::Mul(one_minus_beta1, g));
    }
    HWY_INLINE Vector second_moment(Vector g, Vector v) const {
        return hn::Add(hn::Mul(beta2, v), hn::Mul(one_minus_beta2, hn::Mul(g, g)));
    }

    Vector beta1, one_minus_beta1, beta2, one_minus_beta2;
};

/// AdamUpdate likewise.
struct Update {
    explicit HWY_INLINE Update(const AdamUpdate& update)
        : lr(set(update.lr)),
          eps(set(update.eps)),
          weight_decay(set(update.weight_decay)),
          correct_m(set(update.correct_m)),
          correct_v(set(update.correct_v)) {}

    HWY_INLINE Vector denominator(Vector v) const { return hn::Add(hn::Sqrt(hn::Mul(v, correct_v)), eps); }
    HWY_INLINE Vector with_decay(Vector u, Vector x) const {
        return saturated(hn::Add(saturated(u), hn::Mul(weight_decay, x)));
    }
    HWY_INLINE Vector direction(Vector m, Vector v, Vector x) const {
        return with_decay(hn::Div(hn::Mul(m, correct_m), denominator(v)), x);
    }
    HWY_INLINE Vector frozen_direction(Vector m, Vector precondition, Vector x) const {
        return with_decay(hn::Mul(hn::Mul(m, correct_m), precondition), x);
    }

    Vector lr, eps, weight_decay, correct_m, correct_v;
};

void adam(const float* gradients, float factor, float* m, float* v, float* parameters, std::size_t count,
          const AdamBetas& betas, const AdamUpdate& update) {
    const Betas b(betas);
    const Update u(update);
    const Vector f = set(factor);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector g = hn::Mul(load(gradients + i), f);
        const Vector m_new = b.first_moment(g, load(m + i));
        const Vector v_new = b.second_moment(g, load(v + i));
        const Vector x = load(parameters + i);
        store(m_new, m + i);
        store(v_new, v + i);
        store(stepped(x, u.lr, u.direction(m_new, v_new, x)), parameters + i);
    });
    reference_optim_kernels().adam(gradients + done, factor, m + done, v + done, parameters + done, count - done, betas,
                                   update);
}

void moments(const float* gradients, float factor, float* m, float* v, std::size_t count, const AdamBetas& betas) {
    const Betas b(betas);
    const Vector f = set(factor);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector g = hn::Mul(load(gradients + i), f);
        store(b.first_moment(g, load(m + i)), m + i);
        store(b.second_moment(g, load(v + i)), v + i);
    });
    reference_optim_kernels().moments(gradients + done, factor, m + done, v + done, count - done, betas);
}

void momentum(const float* gradients, float factor, float* m, std::size_t count, const AdamBetas& betas) {
    const Betas b(betas);
    const Vector f = set(factor);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        store(b.first_moment(hn::Mul(load(gradients + i), f), load(m + i)), m + i);
    });
    reference_optim_kernels().momentum(gradients + done, factor, m + done, count - done, betas);
}

void weighted_momentum(const float* gradients, float factor, const float* precondition, float* m, std::size_t count,
                       const AdamBetas& betas) {
    const Betas b(betas);
    const Vector f = set(factor);
    const Vector most = set(betas.most_weighted);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector g = clamp(hn::Mul(hn::Mul(load(gradients + i), f), load(precondition + i)), most);
        store(b.first_moment(g, load(m + i)), m + i);
    });
    reference_optim_kernels().weighted_momentum(gradients + done, factor, precondition + done, m + done, count - done,
                                                betas);
}

void unweigh(const float* values, const float* v, std::size_t count, const AdamUpdate& update, float* out) {
    const Update u(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        store(saturated(hn::Mul(load(values + i), u.denominator(load(v + i)))), out + i);
    });
    reference_optim_kernels().unweigh(values + done, v + done, count - done, update, out + done);
}

void gather_masked(const float* gradients, float factor, const float* precondition, float* sums, std::size_t count) {
    const Vector f = set(factor);
    const Vector most = set(kMostGathered);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector sum = load(sums + i);
        const Vector more = clamp(hn::Add(sum, hn::Mul(load(gradients + i), f)), most);
        store(hn::IfThenElse(hn::Eq(load(precondition + i), set(0)), more, sum), sums + i);
    });
    reference_optim_kernels().gather_masked(gradients + done, factor, precondition + done, sums + done, count - done);
}

void direction(const float* m, const float* v, const float* parameters, std::size_t count, const AdamUpdate& update,
               float* u) {
    const Update up(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        store(up.direction(load(m + i), load(v + i), load(parameters + i)), u + i);
    });
    reference_optim_kernels().direction(m + done, v + done, parameters + done, count - done, update, u + done);
}

void invert_denominator(const float* v, std::size_t count, const AdamUpdate& update, float* precondition) {
    const Update u(update);
    const Vector one = set(1);
    const std::size_t done = for_each_vector(
        count, [&](std::size_t i) HWY_ATTR { store(hn::Div(one, u.denominator(load(v + i))), precondition + i); });
    reference_optim_kernels().invert_denominator(v + done, count - done, update, precondition + done);
}

void frozen_direction(const float* m, const float* precondition, const float* parameters, std::size_t count,
                      const AdamUpdate& update, float* u) {
    const Update up(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        store(up.frozen_direction(load(m + i), load(precondition + i), load(parameters + i)), u + i);
    });
    reference_optim_kernels().frozen_direction(m + done, precondition + done, parameters + done, count - done, update,
                                               u + done);
}

void frozen_update(const float* m, const float* precondition, float* parameters, std::size_t count,
                   const AdamUpdate& update) {
    const Update u(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector x = load(parameters + i);
        store(stepped(x, u.lr, u.frozen_direction(load(m + i), load(precondition + i), x)), parameters + i);
    });
    reference_optim_kernels().frozen_update(m + done, precondition + done, parameters + done, count - done, update);
}

void exchanged_update(const float* m, float* parameters, std::size_t count, const AdamUpdate& update) {
    const Update u(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector x = load(parameters + i);
        store(stepped(x, u.lr, u.with_decay(hn::Mul(load(m + i), u.correct_m), x)), parameters + i);
    });
    reference_optim_kernels().exchanged_update(m + done, parameters + done, count - done, update);
}

void descend(const float* u, float step, float* parameters, std::size_t count) {
    const Vector s = set(step);
    const std::size_t done = for_each_vector(
        count, [&](std::size_t i) HWY_ATTR { store(stepped(load(parameters + i), s, load(u + i)), parameters + i); });
    reference_optim_kernels().descend(u + done, step, parameters + done, count - done);
}

void refresh(const float* m, const float* m_before, const float* precondition, float* v_fresh, std::size_t count,
             const AdamBetas& betas, const AdamUpdate& update, float* ratios) {
    const Betas b(betas);
    const Update u(update);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector change = hn::Sub(load(m + i), hn::Mul(b.beta1, load(m_before + i)));
        const Vector v_new = saturated(b.second_moment(hn::Div(change, b.one_minus_beta1), load(v_fresh + i)));
        store(v_new, v_fresh + i);
        store(hn::Mul(load(precondition + i), u.denominator(v_new)), ratios + i);
    });
    reference_optim_kernels().refresh(m + done, m_before + done, precondition + done, v_fresh + done, count - done,
                                      betas, update, ratios + done);
}

void drift(const float* gradients, float factor, const float* m, const float* precondition, const float* parameters,
           const float* anchor, std::size_t count, const AdamBetas& betas, const AdamUpdate& update, bool of_momentum,
           float* out) {
    const Betas b(betas);
    const Update u(update);
    const Vector f = set(factor);
    const Vector most = set(betas.most_weighted);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector g = hn::Mul(load(gradients + i), f);
        const Vector inverse = load(precondition + i);
        const Vector x = load(parameters + i);
        const Vector from = load(anchor + i);
        if (of_momentum) {
            const Vector m_new = b.first_moment(g, load(m + i));
            const Vector x_new = stepped(x, u.lr, u.frozen_direction(m_new, inverse, x));
            store(saturated(hn::Div(hn::Sub(x_new, from), greater(set(FLT_MIN), inverse))), out + i);
        } else {
            const Vector m_new = b.first_moment(clamp(hn::Mul(g, inverse), most), load(m + i));
            const Vector x_new = stepped(x, u.lr, u.with_decay(hn::Mul(m_new, u.correct_m), x));
            store(saturated(hn::Sub(x_new, from)), out + i);
        }
    });
    reference_optim_kernels().drift(gradients + done, factor, m + done, precondition + done, parameters + done,
                                    anchor + done, count - done, betas, update, of_momentum, out + done);
}

void rejoin(const float* average, const float* precondition, float decay, float* anchor, float* parameters,
            std::size_t count) {
    const Vector d = set(decay);
    const std::size_t done = for_each_vector(count, [&](std::size_t i) HWY_ATTR {
        const Vector old = load(anchor + i);
        Vector step = load(average + i);
        if (precondition != nullptr) step = hn::Mul(step, load(precondition + i));
        const Vector met = saturated(hn::Sub(saturated(hn::Add(old, step)), hn::Mul(d, old)));
        store(met, anchor + i);
        store(met, parameters + i);
    });
    const float* const rest = precondition == nullptr ? nullptr : precondition + done;
    reference_optim_kernels().rejoin(average + done, rest, decay, anchor + done, parameters + done, count - done);
}

void multiply(const float* values, float factor, std::size_t count, float* out) {
    const Vector f = set(factor);
    const std::size_t done = for_each_vector(
        count, [&](std::size_t i) HWY_ATTR { store(saturated(hn::Mul(f, load(values + i))), out + i); });
    reference_optim_kernels().multiply(values + done, factor, count - done, out + done);
}

/// Calls body(group, k, vector) for each of the vectors of each group of 32 elements; the last group is padded with
/// zeros.
template <typename Body>
HWY_INLINE void for_each_group(const float* values, std::size_t count, const Body& body) {
    const Tag d;
    const std::size_t whole = count / kSumLanes;
    for (std::size_t g = 0; g < whole; ++g) {
        for (std::size_t k = 0; k < kRegisters; ++k) body(g, k, load(values + g * kSumLanes + k * kVectorLanes));
    }
    if (const std::size_t rest = count % kSumLanes; rest > 0) {
        alignas(64) float padded[kSumLanes] = {};
        std::memcpy(padded, values + whole * kSumLanes, rest * sizeof(float));
        for (std::size_t k = 0; k < kRegisters; ++k) body(whole, k, hn::Load(d, padded + k * kVectorLanes));
    }
}

double sum_squares(const float* values, std::size_t count) {
    const Tag d;
    Vector sum[kRegisters]; // no std::array, whose functions are compiled for another instruction set
    for (Vector& s : sum) s = hn::Zero(d);
    for_each_group(values, count,
                   [&](std::size_t, std::size_t k, Vector x) HWY_ATTR { sum[k] = hn::Add(sum[k], hn::Mul(x, x)); });
    alignas(64) float lanes[kSumLanes];
    for (std::size_t k = 0; k < kRegisters; ++k) hn::Store(sum[k], d, lanes + k * kVectorLanes);
    for (std::size_t half = kSumLanes / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return is_trusted(lanes[0]) ? lanes[0] : sum_in_double(values, count, ONEBIT_SCALE_L2);
}

float least(const float* values, std::size_t count) {
    Vector smallest = set(values[0]);
    const std::size_t done =
        for_each_vector(count, [&](std::size_t i) HWY_ATTR { smallest = hn::Min(smallest, load(values + i)); });
    float result = hn::GetLane(hn::MinOfLanes(Tag(), smallest));
    for (std::size_t i = done; i < count; ++i) result = std::min(result, values[i]);
    return result;
}

alignas(64) constexpr std::uint32_t kLaneShift[kSumLanes] = {31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21,
                                                             20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10,
                                                             9,  8,  7,  6,  5,  4,  3,  2,  1,  0};

void sketch(const float* values, std::size_t count, std::uint64_t seed, float* buckets) {
    const Tag d;
    const BitsTag b;
    const Bits sign_bit = hn::Set(b, 0x80000000U);
    std::uint32_t plus = 0;
    for_each_group(values, count, [&](std::size_t g, std::size_t k, Vector x) HWY_ATTR {
        if (k == 0) plus = sketch_signs(seed, g);
        // The lane's bit moves to the top; where it is 0 the sign changes.
        const Bits moved = hn::Shl(hn::Set(b, plus), hn::Load(b, kLaneShift + k * kVectorLanes));
        const Vector signed_x = hn::BitCast(d, hn::Xor(hn::BitCast(b, x), hn::AndNot(moved, sign_bit)));
        float* const bucket = buckets + (seed + g) * kSumLanes % kSketchBuckets + k * kVectorLanes;
        store(hn::Add(hn::LoadU(d, bucket), signed_x), bucket);
    });
}

constexpr OptimKernels make_table(const char* name) {
    return {
        name,
#define ONEBIT_OPTIM_KERNEL(result, kernel, parameters) kernel,
#include "optim/kernels/kernels.def"
#undef ONEBIT_OPTIM_KERNEL
    };
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/kernel_tables.hpp"
#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(OptimKernels, available_optim_kernels, reference_optim_kernels)

const OptimKernels& optim_kernels(std::string_view name) {
    return table_or_reference(available_optim_kernels(), name);
}

} // namespace onebit
#endif // HWY_ONCE
