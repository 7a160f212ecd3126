// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Floating-point environments that a caller may have, and calls within them.
#pragma once

#include <cfenv>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace onebit_test {

struct FloatSettings {
    std::string name;
    std::function<void()> set;
};

inline void flush_subnormals() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040U);
#elif defined(__aarch64__)
    std::uint64_t control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" : : "r"(control | std::uint64_t{1} << 24));
#endif
}

inline const std::vector<FloatSettings>& foreign_settings() {
    static const std::vector<FloatSettings> all = {
        {"upward", [] { std::fesetround(FE_UPWARD); }},
        {"downward", [] { std::fesetround(FE_DOWNWARD); }},
        {"toward zero", [] { std::fesetround(FE_TOWARDZERO); }},
        {"subnormals flushed", flush_subnormals},
        {"all traps", [] { feenableexcept(FE_ALL_EXCEPT); }},
        {"all at once",
         [] {
             feenableexcept(FE_ALL_EXCEPT);
             std::fesetround(FE_UPWARD);
             flush_subnormals();
         }},
    };
    return all;
}

// The part of its environment that a thread can see.
struct SeenSettings {
    static SeenSettings now() {
        SeenSettings seen;
#if defined(__x86_64__)
        seen.control = __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
        asm volatile("mrs %0, fpcr" : "=r"(seen.control));
#endif
        seen.rounding = std::fegetround();
        seen.traps = fegetexcept();
        seen.flags = std::fetestexcept(FE_ALL_EXCEPT);
        return seen;
    }
    bool operator==(const SeenSettings&) const = default;

    std::uint64_t control = 0;
    int rounding = 0, traps = 0, flags = 0;
};

// The call's result. The call is made within the settings and must leave them unchanged. Nothing else happens in them:
// a test's own arithmetic uses the default environment.
template <typename Call>
auto call_within(const FloatSettings& settings, RankLog& log, const Call& call) {
    std::fenv_t own;
    std::fegetenv(&own);
    std::feclearexcept(FE_ALL_EXCEPT);
    settings.set();
    const SeenSettings before = SeenSettings::now();
    auto result = call();
    const SeenSettings after = SeenSettings::now();
    std::fesetenv(&own);
    ONEBIT_EXPECT(log, before == after);
    return result;
}

} // namespace onebit_test
