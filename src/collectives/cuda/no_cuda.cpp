// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What stands for cuda_memory_backend.cpp in a build without CUDA.
#include "collectives/operation/memory_backend.hpp"

namespace onebit {

Status make_cuda_backend(void* /*stream*/, std::shared_ptr<const MemoryBackend>* /*backend*/) {
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.memory: ONEBIT_MEMORY_CUDA: this libonebit was built without CUDA (ONEBIT_CUDA)");
}

bool has_cuda_addresses() {
    return false;
}

bool is_on_device(const void* /*address*/) {
    return false;
}

} // namespace onebit
