// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/host_device.hpp"

namespace onebit {

struct AdamBetas {
    float beta1 = 0;
    float one_minus_beta1 = 0;
    float beta2 = 0;
    float one_minus_beta2 = 0;
    float most_weighted = FLT_MAX; ///< bound of a gradient over the frozen denominator

    bool operator==(const AdamBetas&) const = default;
};

/// What an update needs besides the moments: m and v are multiplied by their corrections first.
struct AdamUpdate {
    float lr = 0;
    float eps = 0; ///< at most 2^125, so that no preconditioner is 0
    float weight_decay = 0;
    float correct_m = 1;
    float correct_v = 1;

    bool operator==(const AdamUpdate&) const = default;
};

/// The largest sum of a masked element's gradients: its square, and the sum over the ranks, are floats.
inline constexpr float kMostGathered = 0x1p62F;

/// Floats of a sketch; see kernels.def.
inline constexpr std::size_t kSketchBuckets = 1024;

/// The sign bits of a sketch's word of 32 elements.
ONEBIT_HOST_DEVICE inline std::uint32_t sketch_signs(std::uint64_t seed, std::uint64_t word) {
    std::uint64_t z = seed + word * 0x9e3779b97f4a7c15U; // SplitMix64 [Steele, Lea, Flood, OOPSLA 2014]
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
}

/// One implementation of every kernel in kernels.def.
struct OptimKernels {
    const char* name;
#define ONEBIT_OPTIM_KERNEL(result, kernel, parameters) result(*kernel) parameters;
#include "optim/kernels/kernels.def"
#undef ONEBIT_OPTIM_KERNEL
};

/// The readable scalar version.
const OptimKernels& reference_optim_kernels();

/// All that run on this machine, best first; the last is the reference.
std::span<const OptimKernels* const> available_optim_kernels();

/// Those of this name: a codec's name of its kernels, so that one choice holds for both.
const OptimKernels& optim_kernels(std::string_view name);

} // namespace onebit
