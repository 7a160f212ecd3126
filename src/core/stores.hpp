// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

#include <cstddef>
#include <cstdint>

namespace onebit {

/// How to fill memory that nobody reads soon: through the caches, or past them (non-temporal stores). Same bits.
enum class Stores { kCached, kPastCaches };

/// Whether large stores past the caches are the quicker ones. 64 MiB took 0.9 of the time on an AMD EPYC (Zen 4) and
/// 0.35 on an Intel Xeon (Emerald Rapids), but 1.6 times as long on an older one (Cascade Lake). Intel's
/// performance cores for servers from Sapphire Rapids on are those that have AVX512-FP16.
inline bool stores_past_caches_pay() {
#if defined(__x86_64__)
    static const bool kPay = [] { // never changes
        constexpr unsigned kExtendedFeatures = 7;
        constexpr unsigned kAvx512Fp16 = 1U << 23;
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        if (__builtin_cpu_is("amd") != 0) return true;
        return __get_cpuid_count(kExtendedFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAvx512Fp16) != 0;
    }();
    return kPay;
#else
    return false;
#endif
}

/// The quicker way to fill so many bytes. What fits into the caches stays there for the next reader: on the Emerald
/// Rapids filling and then reading 4 MiB took as long either way, 2 MiB 1.2 times as long past the caches, 8 MiB 0.75.
inline Stores stores_for(std::size_t bytes) {
    constexpr std::size_t kStaysInCaches = std::size_t{8} << 20;
    return bytes >= kStaysInCaches && stores_past_caches_pay() ? Stores::kPastCaches : Stores::kCached;
}

/// The quicker way to fill memory that another core reads next, again and again. On an AMD EPYC (Zen 4) lines that the
/// other core's cache still held were written at 8 GB/s, at times at 2.4, and past the caches at 19 to 21. On the
/// Emerald Rapids an average of 64 MiB through such memory took 15 ms instead of 24, all its stores past the caches.
inline Stores stores_for_other_cores() {
    return stores_for(SIZE_MAX);
}

/// After stores past the caches, on the thread that made them: what is written later is seen later.
inline void order_stores([[maybe_unused]] Stores stores) {
#if defined(__x86_64__)
    if (stores == Stores::kPastCaches) _mm_sfence();
#endif
}

} // namespace onebit
