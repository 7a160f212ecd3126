// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The grouped codes in Highway, compiled once per instruction set. Everything is done in runs of 32 elements,
// which are a whole number of vectors of floats, and of words of codes, on every ISA. The result is reference.cpp's bit
// for bit: the same operations in the same order, no fused multiply-add.

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "compress/grouped/codes.hpp"
#include "compress/grouped/kernels.hpp"
#include "compress/grouped/layout.hpp"
#include "core/random_bits.hpp"
#include "core/simd_targets.hpp" // must come before Highway
#include "core/stores.hpp"
#include "numeric/lanes.hpp"
#include "numeric/mean.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/grouped/simd.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit {
namespace HWY_NAMESPACE {

// The fallback for machines without vectors would only be a slower reference.
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR

#include "numeric/simd_groups.inc"
#include "numeric/simd_halves.inc"

using Run = Group; // 32 elements; a code's group, which shares a scale, is several

/// Codes as whole numbers (Integer::number).
template <unsigned kBits>
HWY_INLINE Vector number_of(Bits codes) {
    const hn::RebindToSigned<Tag> i;
    constexpr int kUnused = 32 - static_cast<int>(kBits);
    return hn::ConvertTo(Tag(), hn::ShiftRight<kUnused>(hn::BitCast(i, hn::ShiftLeft<kUnused>(codes))));
}

#include "compress/grouped/bfloat16_simd.inc"
#include "compress/grouped/float16_simd.inc"
#include "compress/grouped/fp4_simd.inc"
#include "compress/grouped/int2_simd.inc"
#include "compress/grouped/integer_simd.inc"
#include "compress/grouped/means_simd.inc"
#include "compress/grouped/ternary_simd.inc"

/// The codes of a run: element k of it in lane k.
struct Codes {
    Bits registers[kRegisters];

    HWY_INLINE Codes() {} // not initialized
    HWY_INLINE Bits& operator[](std::size_t k) { return registers[k]; }
    HWY_INLINE const Bits& operator[](std::size_t k) const { return registers[k]; }
};

/// Codes shorter than a byte are put together, as many as fit into a byte. They come from different registers or, where
/// each would be half a register, from the halves of one.
template <unsigned kBits>
constexpr std::size_t kTogether = kBits < 8 ? 8 / kBits : 1;
template <unsigned kBits>
constexpr bool kSplits = kLanes / kTogether<kBits> < kVectorLanes;

/// Bit i: the one-bit code of element i.
HWY_INLINE std::uint32_t word_of(const Bits (&codes)[kRegisters]) {
    const BitsTag b;
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < kRegisters; ++k) {
        std::uint8_t bits[8] = {}; // StoreMaskBits may write so many
        hn::StoreMaskBits(b, hn::Ne(codes[k], hn::Zero(b)), bits);
        std::uint32_t of_register = 0;
        std::memcpy(&of_register, bits, sizeof(of_register));
        word |= of_register << k * kVectorLanes;
    }
    return word;
}

/// Writes codes into words, where code_place says.
template <unsigned kBits>
HWY_INLINE void store_codes(const Codes& codes, std::uint32_t* words) {
    using Integers = std::conditional_t<kBits == 16, std::uint16_t, std::uint8_t>;
    auto* const to = reinterpret_cast<Integers*>(words);
    if constexpr (kBits == 1) {
        words[0] = word_of(codes.registers);
    } else if constexpr (kSplits<kBits>) {
        static_assert(kBits == 2 && kRegisters == 2);
        const hn::Half<BitsTag> half;
        const hn::Rebind<Integers, decltype(half)> d;
        const Bits pairs = hn::Or(codes[0], hn::ShiftLeft<4>(codes[1]));
        const auto all = hn::Or(hn::LowerHalf(half, pairs), hn::ShiftLeft<2>(hn::UpperHalf(half, pairs)));
        hn::StoreU(hn::TruncateTo(d, all), d, to);
    } else {
        const hn::Rebind<Integers, BitsTag> d;
        constexpr std::size_t kStored = kRegisters / kTogether<kBits>;
        for (std::size_t k = 0; k < kStored; ++k) {
            Bits all = codes[k];
            for (std::size_t j = 1; j < kTogether<kBits>; ++j) {
                all = hn::Or(all, hn::ShiftLeftSame(codes[k + j * kStored], static_cast<int>(j * kBits)));
            }
            hn::StoreU(hn::TruncateTo(d, all), d, to + k * kVectorLanes);
        }
    }
}

template <unsigned kBits>
HWY_INLINE Codes load_codes(const std::uint32_t* words) {
    using Integers = std::conditional_t<kBits == 16, std::uint16_t, std::uint8_t>;
    const BitsTag b;
    const auto* const from = reinterpret_cast<const Integers*>(words);
    const Bits mask = hn::Set(b, (1U << kBits) - 1);
    Codes codes;
    if constexpr (kBits == 1) {
        for (std::size_t k = 0; k < kRegisters; ++k) {
            codes[k] = hn::IfThenElseZero(hn::RebindMask(b, mask_of(words[0], k)), mask);
        }
    } else if constexpr (kSplits<kBits>) {
        const hn::Half<BitsTag> half;
        const hn::Rebind<Integers, decltype(half)> d;
        const auto all = hn::PromoteTo(half, hn::LoadU(d, from));
        const Bits pairs = hn::Combine(b, hn::ShiftRight<2>(all), all);
        codes[0] = hn::And(pairs, mask);
        codes[1] = hn::And(hn::ShiftRight<4>(pairs), mask);
    } else {
        const hn::Rebind<Integers, BitsTag> d;
        constexpr std::size_t kStored = kRegisters / kTogether<kBits>;
        for (std::size_t k = 0; k < kStored; ++k) {
            const Bits all = hn::PromoteTo(b, hn::LoadU(d, from + k * kVectorLanes));
            codes[k] = kTogether<kBits> == 1 ? all : hn::And(all, mask);
            for (std::size_t j = 1; j < kTogether<kBits>; ++j) {
                const Bits shifted = hn::ShiftRightSame(all, static_cast<int>(j * kBits));
                codes[k + j * kStored] = j + 1 == kTogether<kBits> ? shifted : hn::And(shifted, mask);
            }
        }
    }
    return codes;
}

/// Calls body(g, first_run, end_run) for each group.
template <typename Body>
HWY_INLINE void for_each_group(std::size_t count, const Body& body) {
    constexpr std::size_t kRuns = kGroupElements / kLanes;
    const std::size_t runs = ceil_divide(count, kLanes);
    for (std::size_t g = 0; g * kRuns < runs; ++g) body(g, g * kRuns, std::min((g + 1) * kRuns, runs));
}

using Counts = hn::Vec<hn::RebindToSigned<Tag>>;

/// Counts one more in the lanes of a mask; as numbers, these lanes are -1.
HWY_INLINE Counts count_also(Counts counts, Mask lanes) {
    return hn::Sub(counts, hn::BitCast(hn::RebindToSigned<Tag>(), hn::VecFromMask(Tag(), lanes)));
}
HWY_INLINE std::uint32_t total_of(Counts counts) {
    const hn::RebindToSigned<Tag> i;
    return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(i, counts)));
}
HWY_INLINE void clear(Run& run) {
    for (std::size_t k = 0; k < kRegisters; ++k) run[k] = hn::Zero(Tag());
}

// Statistics of a group of so many runs; `largest`: its largest magnitude.

HWY_INLINE void find(const Run* corrected, std::size_t runs, float largest, Squares* statistics) {
    const Tag d;
    const Vector power = hn::Set(d, Squares::power_before(largest));
    Counts nonzeros = hn::Zero(hn::RebindToSigned<Tag>());
    Run squares;
    clear(squares);
    for (std::size_t r = 0; r < runs; ++r) {
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector c = corrected[r][k];
            const Vector shifted = hn::Mul(c, power);
            squares[k] = hn::Add(squares[k], hn::Mul(shifted, shifted));
            nonzeros = count_also(nonzeros, hn::Ne(c, hn::Zero(d)));
        }
    }
    *statistics = {total_of(squares), total_of(nonzeros)};
}

HWY_INLINE void find(const Run* corrected, std::size_t runs, float /*largest*/, SignedSums* statistics) {
    const Tag d;
    const Vector zero = hn::Zero(d);
    Counts positives = hn::Zero(hn::RebindToSigned<Tag>());
    Counts negatives = positives;
    Run positive;
    Run negative;
    clear(positive);
    clear(negative);
    for (std::size_t r = 0; r < runs; ++r) {
        for (std::size_t k = 0; k < kRegisters; ++k) {
            const Vector c = corrected[r][k];
            const Vector part = hn::Mul(c, hn::Set(d, MagnitudeSum::kPart));
            positive[k] = hn::Add(positive[k], hn::Max(part, zero));
            negative[k] = hn::Add(negative[k], hn::Max(hn::Neg(part), zero));
            positives = count_also(positives, hn::Gt(c, zero));
            negatives = count_also(negatives, hn::Lt(c, zero));
        }
    }
    *statistics = {{total_of(positive), total_of(positives)}, {total_of(negative), total_of(negatives)}};
}

template <typename Scalar>
HWY_INLINE float scale_of(const Run* corrected, std::size_t runs, float largest) {
    if constexpr (requires { typename Scalar::Statistics; }) {
        typename Scalar::Statistics statistics;
        find(corrected, runs, largest, &statistics);
        return Scalar::scale_of(largest, statistics);
    } else {
        return Scalar::scale_of(largest);
    }
}

/// How codes are made of values: rounded to the nearest.
struct ToNearest {
    template <typename Code>
    HWY_INLINE Bits code(const Code& code_of, Vector c, std::size_t /*first*/) const {
        return code_of.code(c);
    }
};

/// Or rounded at random, as drawn.
struct AsDrawn {
    Bits own; ///< the seed plus what each lane's number adds to it

    HWY_INLINE explicit AsDrawn(const DrawnElements& draws) {
        const BitsTag b;
        const Bits numbers = hn::Add(hn::Iota(b, 1), hn::Set(b, draws.first));
        own = hn::Add(hn::Set(b, draws.seed), hn::Mul(numbers, hn::Set(b, kGolden)));
    }
    /// `first`: the number of the vector's first element, counted from the kernel's first one.
    template <typename Code>
    HWY_INLINE Bits code(const Code& code_of, Vector c, std::size_t first) const {
        const Bits step = hn::Set(BitsTag(), static_cast<std::uint32_t>(first) * kGolden);
        return code_of.stochastic_code(c, mixed_lanes(hn::Add(own, step)));
    }
    /// mixed() of core/random_bits.hpp.
    static HWY_INLINE Bits mixed_lanes(Bits x) {
        const BitsTag b;
        x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(b, kFirstMixer));
        x = hn::Mul(hn::Xor(x, hn::ShiftRight<13>(x)), hn::Set(b, kSecondMixer));
        return hn::Xor(x, hn::ShiftRight<16>(x));
    }
};

/// First makes the corrected values, which stay in the innermost cache, and the largest of them; then their codes.
template <typename Code, bool kMasked, Stores kStores, typename Rounding>
HWY_INLINE void encode_groups(const Rounding& rounding, const float* values, const float* before, float* after,
                              const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    using Scalar = typename Code::Scalar;
    for_each_group(count, [&](std::size_t g, std::size_t first_run, std::size_t end_run) HWY_ATTR {
        const BitsTag b;
        Run corrected[kGroupElements / kLanes];
        Bits largest = hn::Zero(b);
        for (std::size_t r = first_run; r < end_run; ++r) {
            Run& c = corrected[r - first_run];
            c = load_group(values, r, count);
            const Run error = load_group(before, r, count);
            if (kStores == Stores::kCached && after != before) prefetch_group_ahead(after + r * kLanes);
            for (std::size_t k = 0; k < kRegisters; ++k) {
                c[k] = hn::Add(c[k], error[k]);
                if constexpr (kMasked) c[k] = hn::IfThenElseZero(mask_of(valid[r], k), c[k]);
                largest = hn::Max(largest, magnitudes_of(c[k]));
            }
        }
        const std::uint32_t largest_bits = hn::GetLane(hn::MaxOfLanes(b, largest));
        if (HWY_UNLIKELY(!is_finite(std::bit_cast<float>(largest_bits)))) {
            to.scales[g] = largest_bits;
            for (std::size_t r = first_run; r < end_run; ++r) {
                std::memset(to.codes + r * Scalar::kBits, 0, Scalar::kBits * sizeof(std::uint32_t));
                store_group<kStores>(corrected[r - first_run], r, count, after);
            }
            return;
        }
        const float scale = scale_of<Scalar>(corrected, end_run - first_run, std::bit_cast<float>(largest_bits));
        to.scales[g] = std::bit_cast<std::uint32_t>(scale);
        const Code code_of(scale);
        const Vector factor = hn::Set(Tag(), Scalar::factor_of(scale));
        for (std::size_t r = first_run; r < end_run; ++r) {
            Run& c = corrected[r - first_run];
            Codes codes;
            prefetch_ahead(to.codes + r * Scalar::kBits);
            for (std::size_t k = 0; k < kRegisters; ++k) {
                codes[k] = rounding.code(code_of, c[k], r * kLanes + k * kVectorLanes);
                c[k] = hn::Sub(c[k], Code::value(codes[k], factor));
                if constexpr (kMasked) c[k] = hn::IfThenElseZero(mask_of(valid[r], k), c[k]);
            }
            store_codes<Scalar::kBits>(codes, to.codes + r * Scalar::kBits);
            store_group<kStores>(c, r, count, after);
        }
    });
}

template <typename Code, typename Rounding>
HWY_INLINE void encode_with(const Rounding& rounding, const float* values, const float* before, float* after,
                            Stores stores, const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    constexpr Stores kCached = Stores::kCached;
    if (valid != nullptr) {
        encode_groups<Code, true, kCached>(rounding, values, before, after, valid, count, to);
    } else if (stores == Stores::kPastCaches && after != before) {
        encode_groups<Code, false, Stores::kPastCaches>(rounding, values, before, after, valid, count, to);
    } else {
        encode_groups<Code, false, kCached>(rounding, values, before, after, valid, count, to);
    }
}

template <typename Code>
void encode(const float* values, const float* before, float* after, Stores stores, const std::uint32_t* valid,
            std::size_t count, const GroupsToWrite& to) {
    encode_with<Code>(ToNearest(), values, before, after, stores, valid, count, to);
}

template <typename Code>
void encode_stochastic(const DrawnElements& draws, const float* values, const float* before, float* after,
                       Stores stores, const std::uint32_t* valid, std::size_t count, const GroupsToWrite& to) {
    encode_with<Code>(AsDrawn(draws), values, before, after, stores, valid, count, to);
}

template <typename Code>
constexpr auto stochastic_encoder() {
    if constexpr (kIsInteger<typename Code::Scalar>) {
        return encode_stochastic<Code>;
    } else {
        return nullptr;
    }
}

/// Calls body(r, values) for each run, with what its codes stand for.
template <typename Code, typename Body>
HWY_INLINE void for_each_run(const GroupsToRead& from, std::size_t count, const Body& body) {
    using Scalar = typename Code::Scalar;
    for_each_group(count, [&](std::size_t g, std::size_t first_run, std::size_t end_run) HWY_ATTR {
        const Vector factor = hn::Set(Tag(), Scalar::factor_of(std::bit_cast<float>(from.scales[g])));
        for (std::size_t r = first_run; r < end_run; ++r) {
            const Codes codes = load_codes<Scalar::kBits>(from.codes + r * Scalar::kBits);
            Run run;
            for (std::size_t k = 0; k < kRegisters; ++k) run[k] = Code::value(codes[k], factor);
            body(r, run);
        }
    });
}

template <typename Code>
void add(const GroupsToRead& from, float share, std::size_t count, float* sums) {
    const Vector factor = hn::Set(Tag(), share);
    for_each_run<Code>(from, count, [&](std::size_t r, Run& run) HWY_ATTR {
        const Run sum = load_group(sums, r, count);
        for (std::size_t k = 0; k < kRegisters; ++k) run[k] = hn::Add(sum[k], hn::Mul(run[k], factor));
        store_group<Stores::kCached>(run, r, count, sums);
    });
}

template <typename Code, bool kMasked, Stores kStores>
HWY_INLINE void decode_groups(const GroupsToRead& from, const std::uint32_t* valid, std::size_t count, float* values) {
    for_each_run<Code>(from, count, [&](std::size_t r, Run& run) HWY_ATTR {
        if constexpr (kStores == Stores::kCached) prefetch_group_ahead(values + r * kLanes);
        if constexpr (kMasked) {
            for (std::size_t k = 0; k < kRegisters; ++k) run[k] = hn::IfThenElseZero(mask_of(valid[r], k), run[k]);
        }
        store_group<kStores>(run, r, count, values);
    });
}

template <typename Code>
void decode(const GroupsToRead& from, const std::uint32_t* valid, std::size_t count, Stores stores, float* values) {
    const bool past = stores == Stores::kPastCaches && is_aligned(values);
    if (valid != nullptr) {
        past ? decode_groups<Code, true, Stores::kPastCaches>(from, valid, count, values)
             : decode_groups<Code, true, Stores::kCached>(from, valid, count, values);
    } else {
        past ? decode_groups<Code, false, Stores::kPastCaches>(from, valid, count, values)
             : decode_groups<Code, false, Stores::kCached>(from, valid, count, values);
    }
}

constexpr GroupedTable make_table(const char* name) {
    return {name,
            {
#define ONEBIT_GROUPED_CODE(constant, scalar, vector) \
    {constant, scalar::kBits, encode<vector>, stochastic_encoder<vector>(), add<vector>, decode<vector>},
#include "compress/grouped/codes.def"
#undef ONEBIT_GROUPED_CODE
            }};
}

#endif // a target with vectors

} // namespace HWY_NAMESPACE
} // namespace onebit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/simd_tables.hpp"

namespace onebit {

ONEBIT_DEFINE_TABLES(GroupedTable, available_grouped_kernels, reference_grouped_kernels)

} // namespace onebit
#endif // HWY_ONCE
