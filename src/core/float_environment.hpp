// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>
#include <cstdint>

namespace onebit {

/// The floating-point environment in which the library computes everything, whatever the caller's is: results are
/// rounded to nearest, subnormal operands count as zero, subnormal results become zero of their sign, nothing traps.
/// Lasts as long as the object. Then the thread has its own environment again, with its exception flags.
///
/// docs/WIRE_FORMAT.md, "Arithmetic", says what this means for a result. With different rounding modes, two ranks'
/// parameters would diverge.
class FloatEnvironment {
  public:
    FloatEnvironment() noexcept { enter(); }
    ~FloatEnvironment() { leave(); }
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  private:
    // The volatile statements that touch all memory keep computations in their place: computations from memory can't
    // move across them.
#if defined(__x86_64__)
    // Traps masked (0x1f80), flush to zero (0x8000), denormals are zero (0x40).
    static constexpr std::uint32_t kVectorControl = 0x9fc0;
    // Traps masked, 64 bits of precision, to nearest: every process begins with this. Texts of numbers depend on it
    // (strtod).
    static constexpr std::uint16_t kX87Control = 0x037f;

    void enter() noexcept {
        asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(vector_), "=m"(x87_) : : "memory");
        asm volatile("ldmxcsr %0" : : "m"(kVectorControl) : "memory");
        if (x87_ != kX87Control) asm volatile("fldcw %0" : : "m"(kX87Control) : "memory");
    }
    void leave() noexcept {
        if (x87_ != kX87Control) asm volatile("fldcw %0" : : "m"(x87_) : "memory");
        asm volatile("ldmxcsr %0" : : "m"(vector_) : "memory");
    }

    std::uint32_t vector_;
    std::uint16_t x87_;
#elif defined(__aarch64__)
    static constexpr std::uint64_t kControl = std::uint64_t{1} << 24; // FZ, no trap, to nearest

    void enter() noexcept {
        asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control_), "=r"(flags_) : : "memory");
        asm volatile("msr fpcr, %0" : : "r"(kControl) : "memory");
    }
    void leave() noexcept {
        asm volatile("msr fpsr, %1\n\tmsr fpcr, %0" : : "r"(control_), "r"(flags_) : "memory");
    }

    std::uint64_t control_;
    std::uint64_t flags_;
#else
    void enter() noexcept { // without flushing: subnormals are slow there
        std::fegetenv(&environment_);
        std::fesetenv(FE_DFL_ENV);
    }
    void leave() noexcept {
        std::fesetenv(&environment_);
    }

    std::fenv_t environment_;
#endif
};

} // namespace onebit
