// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// To be included before Highway, by the files that Highway compiles once per instruction set.

// Vectors of unknown length don't fit the fixed 32 lanes; such machines have a fixed-length ISA, too. Machines with
// only SSSE3 are no longer met.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

namespace onebit {

/// Asks for the cache line that is 2 KiB ahead: the hardware's own prefetcher alone leaves a tenth of one core's
/// bandwidth unused, and for stores a third. Asking past the end of a buffer is harmless.
inline __attribute__((always_inline)) void prefetch_ahead(const void* line) {
    constexpr std::uintptr_t kAhead = 2048;
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(line) + kAhead));
}

} // namespace onebit
