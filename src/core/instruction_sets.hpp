// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onebit {

/// What the compiler may use in Highway's target of that name.
enum class InstructionSet {
    kSse4,   ///< SSE4.2, AES and PCLMUL
    kAvx2,   ///< kSse4, AVX2, FMA, F16C, BMI, BMI2 and LZCNT
    kAvx512, ///< kAvx2 and AVX-512 F, VL, CD, DQ and BW
    kNeon    ///< 64-bit NEON and AES
};

/// Whether this processor has it and the operating system keeps its registers. By this function libonebit does without
/// Highway's library: the kernels need only its headers.
bool machine_has(InstructionSet set);

} // namespace onebit
