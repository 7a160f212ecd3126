// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onebit {

/// A library that is looked for at run time, so that programs start on machines that lack it.
struct Runtime {
    bool usable = false;
    int version = 0;     ///< as the library counts: 13000 for CUDA 13.0, 22809 for NCCL 2.28.9; 0: unknown
    std::string why_not; ///< the reason in words, where it is not usable
};

/// Oldest NCCL with all functions called without a check.
inline constexpr int kOldestNccl = 21900;

/// The CUDA driver: whether it is there and has a device, and how many. Starts the driver, but makes no context.
Runtime find_cuda_driver(int* devices);

/// NCCL, by the name that the dynamic linker finds it by.
Runtime find_nccl();

/// "2.28.9" for 22809, "13.0" for 13000.
std::string nccl_version_text(int version);
std::string cuda_version_text(int version);

} // namespace onebit
