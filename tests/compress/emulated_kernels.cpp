// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
//
// The GPU's kernels without a GPU: what kernels.cu launches, run by emulated threads.

#include <cstdlib>
#include <cstring>

#include "compress/device_memory.hpp"
#include "compress/emulated_launch.hpp"

namespace onebit {

void* allocate_on_device(std::size_t bytes) {
    return std::malloc(bytes);
}
void free_on_device(void* memory) {
    std::free(memory);
}
void copy_memory(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

namespace cuda {

Status encode(const EncodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status blend_encode(const BlendEncodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status average_encode(const AverageEncodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status seal(const SealArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status decode(const DecodeArguments& arguments, Stream) {
    return launch_emulated(arguments);
}
Status first_nonfinite(const FirstNonfiniteArguments& arguments, Stream) {
    *arguments.first = kAllFinite;
    return launch_emulated(arguments);
}

} // namespace cuda
} // namespace onebit
