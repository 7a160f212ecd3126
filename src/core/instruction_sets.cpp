// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "core/instruction_sets.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace onebit {
namespace {

#if defined(__x86_64__)

/// The two features that clang's __builtin_cpu_supports doesn't know.
bool has_f16c_and_lzcnt() {
    constexpr unsigned kFeatures = 1;
    constexpr unsigned kExtendedFeatures = 0x80000001;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid(kFeatures, &a, &b, &c, &d) == 0 || (c & bit_F16C) == 0) return false;
    return __get_cpuid(kExtendedFeatures, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}

bool has_sse4() {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
}

bool has_avx2() {
    return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c_and_lzcnt();
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw");
}

#endif

bool has_neon() {
#if defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_AES) != 0;
#else
    return false;
#endif
}

} // namespace

bool machine_has(InstructionSet set) {
#if defined(__x86_64__)
    __builtin_cpu_init(); // a static constructor may ask before libgcc's own has run
    switch (set) {
        case InstructionSet::kSse4:
            return has_sse4();
        case InstructionSet::kAvx2:
            return has_avx2();
        case InstructionSet::kAvx512:
            return has_avx512();
        case InstructionSet::kNeon:
            break;
    }
#endif
    return set == InstructionSet::kNeon && has_neon();
}

} // namespace onebit
