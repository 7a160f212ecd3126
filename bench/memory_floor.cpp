// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

#include "memory_floor.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory_floor.cpp"
#include <hwy/foreach_target.h> // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onebit::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

constexpr std::size_t kLine = 16;   // floats
constexpr std::size_t kAhead = 512; // floats: half a page, the best of 256 to 2048 in measurements

// Fetches the cache line that will be needed `kAhead` elements later, once per line with any length of vectors. At the
// arrays' end that line lies outside the arrays: there a prefetch does nothing.
template <bool kPrefetch>
HWY_INLINE void fetch_ahead(const float* p, std::size_t i) {
    if constexpr (kPrefetch) {
        if (i % kLine == 0) hwy::Prefetch(p + i + kAhead);
    }
}

template <bool kPrefetch>
float axpy(const float* HWY_RESTRICT x, float* HWY_RESTRICT y, std::size_t count) {
    const Tag d;
    const auto a = hn::Set(d, 0.5F);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        fetch_ahead<kPrefetch>(x, i);
        fetch_ahead<kPrefetch>(y, i);
        hn::Store(hn::MulAdd(a, hn::Load(d, x + i), hn::Load(d, y + i)), d, y + i);
    }
    return y[0];
}

template <bool kPrefetch>
float scale(const float* /*x*/, float* HWY_RESTRICT y, std::size_t count) {
    const Tag d;
    const auto a = hn::Set(d, -1.0F); // values neither grow nor become denormal, however often it runs
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        fetch_ahead<kPrefetch>(y, i);
        hn::Store(hn::Mul(a, hn::Load(d, y + i)), d, y + i);
    }
    return y[0];
}

enum class Store { kPlain, kPrefetched, kStreaming };

template <Store kStore>
float fill(const float* /*x*/, float* HWY_RESTRICT y, std::size_t count) {
    const Tag d;
    const auto a = hn::Set(d, 0.5F);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        fetch_ahead<kStore == Store::kPrefetched>(y, i);
        if constexpr (kStore == Store::kStreaming) {
            hn::Stream(a, d, y + i);
        } else {
            hn::Store(a, d, y + i);
        }
    }
    if constexpr (kStore == Store::kStreaming) hwy::FlushStream();
    return y[0];
}

// Four streams, side by side: the next vectors (kApart 0), or one in each quarter of a stretch of 4 * kApart floats,
// which keeps more of memory busy. Independent maxima, so that memory and not the latency of Max is measured.
template <bool kPrefetch, std::size_t kApart>
float read(const float* HWY_RESTRICT x, float* /*y*/, std::size_t count) {
    const Tag d;
    const std::size_t lanes = hn::Lanes(d);
    const std::size_t apart = kApart == 0 || count % (4 * kApart) != 0 ? lanes : kApart;
    auto m0 = hn::Zero(d);
    auto m1 = m0;
    auto m2 = m0;
    auto m3 = m0;
    for (std::size_t stretch = 0; stretch < count; stretch += 4 * apart) {
        for (std::size_t i = stretch; i < stretch + apart; i += lanes) {
            for (std::size_t part = 0; part < 4; ++part) fetch_ahead<kPrefetch>(x, i + part * apart);
            m0 = hn::Max(m0, hn::Abs(hn::Load(d, x + i)));
            m1 = hn::Max(m1, hn::Abs(hn::Load(d, x + i + apart)));
            m2 = hn::Max(m2, hn::Abs(hn::Load(d, x + i + 2 * apart)));
            m3 = hn::Max(m3, hn::Abs(hn::Load(d, x + i + 3 * apart)));
        }
    }
    return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// HWY_EXPORT needs plain names.
float axpy_plain(const float* x, float* y, std::size_t count) {
    return axpy<false>(x, y, count);
}
float axpy_prefetch(const float* x, float* y, std::size_t count) {
    return axpy<true>(x, y, count);
}
float scale_plain(const float* x, float* y, std::size_t count) {
    return scale<false>(x, y, count);
}
float scale_prefetch(const float* x, float* y, std::size_t count) {
    return scale<true>(x, y, count);
}
float fill_plain(const float* x, float* y, std::size_t count) {
    return fill<Store::kPlain>(x, y, count);
}
float fill_prefetch(const float* x, float* y, std::size_t count) {
    return fill<Store::kPrefetched>(x, y, count);
}
float fill_streaming(const float* x, float* y, std::size_t count) {
    return fill<Store::kStreaming>(x, y, count);
}
float read_plain(const float* x, float* y, std::size_t count) {
    return read<false, 0>(x, y, count);
}
float read_prefetch(const float* x, float* y, std::size_t count) {
    return read<true, 0>(x, y, count);
}
float read_four_streams(const float* x, float* y, std::size_t count) {
    return read<true, 131072>(x, y, count);
}

} // namespace HWY_NAMESPACE
} // namespace onebit::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace onebit::bench {

namespace {

HWY_EXPORT(axpy_plain);
HWY_EXPORT(axpy_prefetch);
HWY_EXPORT(scale_plain);
HWY_EXPORT(scale_prefetch);
HWY_EXPORT(fill_plain);
HWY_EXPORT(fill_prefetch);
HWY_EXPORT(fill_streaming);
HWY_EXPORT(read_plain);
HWY_EXPORT(read_prefetch);
HWY_EXPORT(read_four_streams);

#define ONEBIT_FLOOR(function) \
    [](const float* x, float* y, std::size_t count) { return HWY_DYNAMIC_DISPATCH(function)(x, y, count); }

constexpr std::array<FloorCandidate, 2> kAxpyCandidates = {
    {{"axpy", ONEBIT_FLOOR(axpy_plain)}, {"axpy, prefetch", ONEBIT_FLOOR(axpy_prefetch)}}};
constexpr std::array<FloorCandidate, 2> kScaleCandidates = {
    {{"scale", ONEBIT_FLOOR(scale_plain)}, {"scale, prefetch", ONEBIT_FLOOR(scale_prefetch)}}};
constexpr std::array<FloorCandidate, 3> kFillCandidates = {{{"fill", ONEBIT_FLOOR(fill_plain)},
                                                            {"fill, prefetch", ONEBIT_FLOOR(fill_prefetch)},
                                                            {"fill, streaming", ONEBIT_FLOOR(fill_streaming)}}};
constexpr std::array<FloorCandidate, 3> kReadCandidates = {{{"read", ONEBIT_FLOOR(read_plain)},
                                                            {"read, prefetch", ONEBIT_FLOOR(read_prefetch)},
                                                            {"read, 4 streams", ONEBIT_FLOOR(read_four_streams)}}};

#undef ONEBIT_FLOOR

} // namespace

std::span<const FloorCandidate> floor_candidates(Floor floor) {
    switch (floor) {
        case Floor::kScale:
            return kScaleCandidates;
        case Floor::kFill:
            return kFillCandidates;
        case Floor::kRead:
            return kReadCandidates;
        case Floor::kAxpy:
            break;
    }
    return kAxpyCandidates;
}

} // namespace onebit::bench

#endif // HWY_ONCE
