// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels on plain values in Highway, compiled once per instruction set. The result is reference.cpp's bit for bit:
// the same operations in the same order, no fused multiply-add.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/partition.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/halves.hpp"
#include "numeric/kernels.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"
#include "numeric/scaled_bytes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numeric/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"
#include "numeric/simd_halves.inc"

/// The larger magnitudes.
HWY_INLINE Bits larger(Bits largest, Vector values) {
    return hn::Max(largest, magnitudes_of(values));
}
HWY_INLINE bool is_within(Bits largest, float limit) {
    return hn::GetLane(hn::MaxOfLanes(BitsTag(), largest)) <= std::bit_cast<std::uint32_t>(limit);
}
HWY_INLINE bool is_within(float value, float limit) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU) <= std::bit_cast<std::uint32_t>(limit);
}

bool all_within(const float* values, std::size_t count, float limit) {
    // Four parts side by side: a core keeps more of memory busy with four streams than with one.
    constexpr std::size_t kParts = 4;
    Bits largest[kParts];
    for (Bits& v : largest) v = hn::Zero(BitsTag());
    const std::size_t part = count / (kParts * kLanes) * kLanes;
    for (std::size_t i = 0; i < part; i += kLanes) {
        for (std::size_t p = 0; p < kParts; ++p) {
            const float* const group = values + p * part + i;
            prefetch_group_ahead(group);
            for (std::size_t k = 0; k < kRegisters; ++k) {
                largest[p] = larger(largest[p], hn::LoadU(Tag(), group + k * kVectorLanes));
            }
        }
    }
    bool within = true;
    for (const Bits& v : largest) within = is_within(v, limit) && within;
    for (std::size_t i = kParts * part; i < count; ++i) within = is_within(values[i], limit) && within;
    return within;
}

template <Stores kStores>
HWY_INLINE bool copy_to(const float* values, std::size_t count, float* to) {
    const Tag d;
    Bits largest = hn::Zero(BitsTag());
    const std::size_t whole = count / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
        prefetch_group_ahead(values + i);
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector v = hn::LoadU(d, values + i + k * kVectorLanes);
            largest = larger(largest, v);
            store<kStores>(v, to + i + k * kVectorLanes);
        }
    }
    bool finite = is_within(largest, FLT_MAX);
    for (std::size_t i = whole; i < count; ++i) {
        to[i] = values[i];
        finite = is_within(values[i], FLT_MAX) && finite;
    }
    return finite;
}

bool copy(const float* values, std::size_t count, Stores stores, float* to) {
    return stores == Stores::kPastCaches && is_aligned(to) ? copy_to<Stores::kPastCaches>(values, count, to)
                                                           : copy_to<Stores::kCached>(values, count, to);
}

template <Stores kStores, Stores kAlsoStores>
HWY_INLINE void mean_to(const float* const* parts, std::size_t part_count, std::size_t first, float share,
                        std::size_t count, float* to, float* also) {
    const Vector factor = hn::Set(Tag(), share);
    const std::size_t whole = count / kLanes * kLanes;
    for (std::size_t i = 0; i < whole; i += kLanes) {
        for (std::size_t p = 0; p < part_count; ++p) prefetch_group_ahead(parts[p] + first + i);
        Group means;
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const std::size_t at = first + i + k * kVectorLanes;
            Vector v = hn::LoadU(Tag(), parts[0] + at);
            for (std::size_t p = 1; p < part_count; ++p) v = hn::Add(v, hn::LoadU(Tag(), parts[p] + at));
            means[k] = hn::Mul(v, factor);
        }
        if (HWY_UNLIKELY(!all_finite(means))) {
            means = checked_means(means, parts, part_count, first + i, kLanes, share);
        }
        for (std::size_t k = 0; k < kRegisters; ++k) {
            store<kStores>(means[k], to + i + k * kVectorLanes);
            store<kAlsoStores>(means[k], also + i + k * kVectorLanes);
        }
    }
    reference_numeric_kernels().mean(parts, part_count, first + whole, share, count - whole, Stores::kCached,
                                     to + whole, Stores::kCached, also + whole);
}

void mean(const float* const* parts, std::size_t part_count, std::size_t first, float share, std::size_t count,
          Stores stores, float* to, Stores also_stores, float* also) {
    constexpr Stores kCached = Stores::kCached;
    constexpr Stores kPastCaches = Stores::kPastCaches;
    const bool past = stores == kPastCaches && is_aligned(to);
    const bool also_past = also_stores == kPastCaches && is_aligned(also);
    if (past && also_past) return mean_to<kPastCaches, kPastCaches>(parts, part_count, first, share, count, to, also);
    if (past) return mean_to<kPastCaches, kCached>(parts, part_count, first, share, count, to, also);
    if (also_past) return mean_to<kCached, kPastCaches>(parts, part_count, first, share, count, to, also);
    mean_to<kCached, kCached>(parts, part_count, first, share, count, to, also);
}

// ---- 16-bit formats: the scalar arithmetic of halves.hpp, lane by lane ----

using HalfTag = hn::Rebind<std::uint16_t, Tag>; // as many as there are floats in a vector
using FullTag = hn::CappedTag<std::uint16_t, kLanes>;
constexpr std::size_t kFullLanes = hn::MaxLanes(FullTag());

HWY_INLINE Bits load_halves(const std::uint16_t* from) {
    prefetch_ahead(from);
    return hn::PromoteTo(BitsTag(), hn::LoadU(HalfTag(), from));
}

/// Past the caches, `to` must be aligned. Half a vector of 16 bytes can't go past the caches.
template <Stores kStores, typename D>
HWY_INLINE void store_halves(hn::Vec<D> halves, D d, std::uint16_t* to) {
    constexpr bool kWhole = hn::MaxLanes(D()) * sizeof(std::uint16_t) >= 16;
    if constexpr (kStores == Stores::kPastCaches && kWhole) {
        hn::Stream(halves, d, to);
    } else {
        hn::StoreU(halves, d, to);
    }
}

/// Whether the values are aligned like a full vector.
HWY_INLINE bool is_aligned(const std::uint16_t* values) {
    return reinterpret_cast<std::uintptr_t>(values) % (kFullLanes * sizeof(std::uint16_t)) == 0;
}

template <typename Format>
HWY_INLINE void widen(const std::uint16_t* values, std::size_t count, float* to) {
    std::size_t i = 0;
    for (; i + kVectorLanes <= count; i += kVectorLanes) {
        hn::StoreU(Format::widened(load_halves(values + i)), Tag(), to + i);
    }
    for (; i < count; ++i) to[i] = Format::Scalar::widened(values[i]);
}

/// Whether any magnitude is beyond Format's kLimit.
template <typename Format>
HWY_INLINE bool any_beyond(Bits magnitudes) {
    return !hn::AllFalse(BitsTag(), hn::Gt(magnitudes, bits(std::bit_cast<std::uint32_t>(Format::Scalar::kLimit))));
}

template <typename Format, Stores kStores>
HWY_INLINE void narrow_vector(Vector values, std::uint16_t* to) {
    const hn::RebindToSigned<Tag> as_int; // below 2^16, so that nothing saturates
    const Bits halves = Format::narrowed(values);
    store_halves<kStores>(hn::DemoteTo(HalfTag(), hn::BitCast(as_int, halves)), HalfTag(), to);
}

template <typename Format>
HWY_INLINE bool narrow(const float* values, std::size_t count, std::uint16_t* to) {
    Bits largest = hn::Zero(BitsTag());
    std::size_t i = 0;
    for (; i + kVectorLanes <= count; i += kVectorLanes) {
        prefetch_ahead(values + i);
        const Vector v = hn::LoadU(Tag(), values + i);
        largest = hn::Max(largest, magnitudes_of(v));
        narrow_vector<Format, Stores::kCached>(v, to + i);
    }
    bool within = !any_beyond<Format>(largest);
    for (; i < count; ++i) {
        to[i] = Format::Scalar::narrowed(values[i]);
        within = is_within(values[i], Format::Scalar::kLimit) && within;
    }
    return within;
}

/// The mean of a vector of elements, the first of them i. Not checked: it may be infinite where the sum overflows.
template <typename Format>
HWY_INLINE Vector mean_of_vector(const std::uint16_t* const* parts, std::size_t part_count, std::size_t i,
                                 Vector factor) {
    Vector v = Format::widened(load_halves(parts[0] + i));
    for (std::size_t p = 1; p < part_count; ++p) v = hn::Add(v, Format::widened(load_halves(parts[p] + i)));
    return hn::Mul(v, factor);
}

template <typename Format>
HWY_INLINE float mean_of_element(const std::uint16_t* const* parts, std::size_t part_count, std::size_t i,
                                 float share) {
    return mean_of(part_count, share, [&](std::size_t p) { return Format::Scalar::widened(parts[p][i]); });
}

template <typename Format>
HWY_INLINE void mean_of_halves(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first,
                               float share, std::size_t count, float* to) {
    const Vector factor = hn::Set(Tag(), share);
    std::size_t i = 0;
    for (; i + kVectorLanes <= count; i += kVectorLanes) {
        const Vector v = mean_of_vector<Format>(parts, part_count, first + i, factor);
        hn::StoreU(v, Tag(), to + i);
        if (HWY_UNLIKELY(any_beyond<Format>(magnitudes_of(v)))) {
            for (std::size_t k = i; k < i + kVectorLanes; ++k) {
                to[k] = mean_of_element<Format>(parts, part_count, first + k, share);
            }
        }
    }
    for (; i < count; ++i) to[i] = mean_of_element<Format>(parts, part_count, first + i, share);
}

template <typename Format, Stores kStores, Stores kAlsoStores>
HWY_INLINE void mean_in_halves_to(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first,
                                  float share, std::size_t count, std::uint16_t* to, std::uint16_t* also) {
    const Vector factor = hn::Set(Tag(), share);
    const auto scalar = [&](std::size_t k) {
        const float mean = mean_of_element<Format>(parts, part_count, first + k, share);
        to[k] = also[k] = narrowed_or_infinite<typename Format::Scalar>(mean);
    };
    std::size_t i = 0;
    for (; i + kVectorLanes <= count; i += kVectorLanes) {
        const Vector v = mean_of_vector<Format>(parts, part_count, first + i, factor);
        if (HWY_LIKELY(!any_beyond<Format>(magnitudes_of(v)))) {
            narrow_vector<Format, kStores>(v, to + i);
            narrow_vector<Format, kAlsoStores>(v, also + i);
        } else {
            for (std::size_t k = i; k < i + kVectorLanes; ++k) scalar(k);
        }
    }
    for (; i < count; ++i) scalar(i);
}

template <typename Format>
HWY_INLINE void mean_in_halves(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first,
                               float share, std::size_t count, Stores stores, std::uint16_t* to, Stores also_stores,
                               std::uint16_t* also) {
    constexpr Stores kCached = Stores::kCached;
    constexpr Stores kPast = Stores::kPastCaches;
    const bool past = stores == kPast && is_aligned(to);
    const bool also_past = also_stores == kPast && is_aligned(also);
    if (past && also_past) {
        mean_in_halves_to<Format, kPast, kPast>(parts, part_count, first, share, count, to, also);
    } else if (past) {
        mean_in_halves_to<Format, kPast, kCached>(parts, part_count, first, share, count, to, also);
    } else if (also_past) {
        mean_in_halves_to<Format, kCached, kPast>(parts, part_count, first, share, count, to, also);
    } else {
        mean_in_halves_to<Format, kCached, kCached>(parts, part_count, first, share, count, to, also);
    }
}

void widen_float16(const std::uint16_t* values, std::size_t count, float* to) {
    widen<VectorFloat16>(values, count, to);
}
void widen_bfloat16(const std::uint16_t* values, std::size_t count, float* to) {
    widen<VectorBrainFloat16>(values, count, to);
}
bool narrow_float16(const float* values, std::size_t count, std::uint16_t* to) {
    return narrow<VectorFloat16>(values, count, to);
}
bool narrow_bfloat16(const float* values, std::size_t count, std::uint16_t* to) {
    return narrow<VectorBrainFloat16>(values, count, to);
}
void mean_float16(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                  std::size_t count, float* to) {
    mean_of_halves<VectorFloat16>(parts, part_count, first, share, count, to);
}
void mean_bfloat16(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                   std::size_t count, float* to) {
    mean_of_halves<VectorBrainFloat16>(parts, part_count, first, share, count, to);
}
void mean_in_float16(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                     std::size_t count, Stores stores, std::uint16_t* to, Stores also_stores, std::uint16_t* also) {
    mean_in_halves<VectorFloat16>(parts, part_count, first, share, count, stores, to, also_stores, also);
}
void mean_in_bfloat16(const std::uint16_t* const* parts, std::size_t part_count, std::size_t first, float share,
                      std::size_t count, Stores stores, std::uint16_t* to, Stores also_stores, std::uint16_t* also) {
    mean_in_halves<VectorBrainFloat16>(parts, part_count, first, share, count, stores, to, also_stores, also);
}

/// use(i, vector) for whole vectors. Whether all their magnitudes are at most `most`. *done: values in them.
template <typename Use>
HWY_INLINE bool look_at_halves(const std::uint16_t* values, std::size_t count, std::uint16_t most, std::size_t* done,
                               const Use& use) {
    const FullTag d;
    auto largest = hn::Zero(d);
    std::size_t i = 0;
    for (; i + kFullLanes <= count; i += kFullLanes) {
        prefetch_ahead(values + i);
        const auto v = hn::LoadU(d, values + i);
        use(i, v);
        largest = hn::Max(largest, hn::And(v, hn::Set(d, std::uint16_t{0x7fff})));
    }
    *done = i;
    alignas(64) std::uint16_t lanes[kFullLanes];
    hn::Store(largest, d, lanes);
    return *std::max_element(lanes, lanes + kFullLanes) <= most;
}

bool halves_within(const std::uint16_t* values, std::size_t count, std::uint16_t most) {
    std::size_t done = 0;
    const bool within = look_at_halves(values, count, most, &done, [](std::size_t, auto) HWY_ATTR {});
    return reference_numeric_kernels().halves_within(values + done, count - done, most) && within;
}

template <Stores kStores>
HWY_INLINE bool copy_halves_to(const std::uint16_t* values, std::size_t count, std::uint16_t most, std::uint16_t* to) {
    std::size_t done = 0;
    const bool within = look_at_halves(values, count, most, &done, [=](std::size_t i, auto v) HWY_ATTR {
        store_halves<kStores>(v, FullTag(), to + i);
    });
    const auto& rest = reference_numeric_kernels();
    return rest.copy_halves(values + done, count - done, most, Stores::kCached, to + done) && within;
}

bool copy_halves(const std::uint16_t* values, std::size_t count, std::uint16_t most, Stores stores, std::uint16_t* to) {
    return stores == Stores::kPastCaches && is_aligned(to)
               ? copy_halves_to<Stores::kPastCaches>(values, count, most, to)
               : copy_halves_to<Stores::kCached>(values, count, most, to);
}

// ---- Bytes, each with a power of two of its 256 ----

constexpr std::size_t kScaledRuns = kScaledGroup / kLanes;

/// The first `count` bytes of 32 that a group of floats become, or are made of, at `bytes`.
HWY_INLINE void store_bytes(const Group& group, float inverse, std::size_t count, std::int8_t* bytes) {
    const Tag d;
    const hn::Rebind<std::uint8_t, Tag> b;
    alignas(64) std::uint8_t all[kLanes];
    for (std::size_t k = 0; k < kRegisters; ++k) {
        const Vector number =
            hn::Clamp(hn::Mul(group[k], hn::Set(d, inverse)), hn::Set(d, -kMostInByte), hn::Set(d, kMostInByte));
        const Bits rounded = hn::BitCast(BitsTag(), hn::Add(number, hn::Set(d, onebit::rounded::kToWhole)));
        hn::StoreU(hn::TruncateTo(b, rounded), b, all + k * kVectorLanes);
    }
    std::memcpy(bytes, all, std::min(count, kLanes));
}

HWY_INLINE Group load_bytes(const std::int8_t* bytes, std::size_t count, float scale) {
    const Tag d;
    const hn::RebindToSigned<Tag> i;
    const hn::Rebind<std::int8_t, Tag> b;
    alignas(64) std::int8_t padded[kLanes];
    if (HWY_UNLIKELY(count < kLanes)) {
        std::memset(padded, 0, sizeof(padded));
        std::memcpy(padded, bytes, count);
        bytes = padded;
    }
    Group group;
    for (std::size_t k = 0; k < kRegisters; ++k) {
        const auto numbers = hn::PromoteTo(i, hn::LoadU(b, bytes + k * kVectorLanes));
        group[k] = hn::Mul(hn::ConvertTo(d, numbers), hn::Set(d, scale));
    }
    return group;
}

void narrow_to_bytes(const float* values, std::size_t count, std::int8_t* to, std::uint8_t* exponents) {
    for (std::size_t begin = 0; begin < count; begin += kScaledGroup) {
        const std::size_t here = std::min(kScaledGroup, count - begin);
        const std::size_t runs = ceil_divide(here, kLanes);
        Group groups[kScaledRuns];
        Bits largest = hn::Zero(BitsTag());
        for (std::size_t r = 0; r < runs; ++r) {
            groups[r] = load_group(values + begin, r, here);
            for (std::size_t k = 0; k < kRegisters; ++k) largest = larger(largest, groups[r][k]);
        }
        const std::uint8_t exponent = scaled_exponent(hn::GetLane(hn::MaxOfLanes(BitsTag(), largest)));
        exponents[begin / kScaledGroup] = exponent;
        if (HWY_UNLIKELY(exponent == kNotFinite)) {
            std::memset(to + begin, 0, here);
            continue;
        }
        const float inverse = inverse_of_exponent(exponent);
        for (std::size_t r = 0; r < runs; ++r) {
            store_bytes(groups[r], inverse, here - r * kLanes, to + begin + r * kLanes);
        }
    }
}

void widen_bytes(const std::int8_t* values, const std::uint8_t* exponents, std::size_t count, float* to) {
    for (std::size_t begin = 0; begin < count; begin += kLanes) {
        const float scale = scale_of_exponent(exponents[begin / kScaledGroup]);
        store_group<Stores::kCached>(load_bytes(values + begin, count - begin, scale), begin / kLanes, count, to);
    }
}

constexpr NumericKernels make_table(const char* name) {
    return {
        name,
#define ONEBIT_NUMERIC_KERNEL(result, kernel, parameters) kernel,
#include "numeric/kernels.def"
#undef ONEBIT_NUMERIC_KERNEL
    };
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(NumericKernels, available_numeric_kernels, reference_numeric_kernels)

} // namespace onebit
#endif // HWY_ONCE
