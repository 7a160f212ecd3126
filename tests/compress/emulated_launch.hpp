// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What stands for launch.cuh where the GPU is emulated.
#pragma once

#include "compress/sign/cuda/block_kernels.hpp"
#include "core/status.hpp"
#include "support/emulated_device.hpp"
#include "support/emulated_gpu.hpp"

namespace onebit::cuda {

template <typename Arguments>
Status launch_emulated(const Arguments& arguments) {
    const onebit_test::OnDevice on_device;
    onebit_test::run_on_emulated_gpu<kWarps, Scratch>(
        blocks_of(arguments), [&](const auto& thread, Scratch& scratch) { run(thread, arguments, scratch); });
    return {};
}

} // namespace onebit::cuda
