// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// Replaces cuda_passes.cpp in a build without CUDA.
#include "optim/passes.hpp"

namespace onebit {

std::unique_ptr<Passes> make_cuda_passes(Bucket& /*bucket*/, const PassSettings& /*settings*/, Memory& /*memory*/,
                                         void* /*stream*/, const CudaNeeds& /*needs*/) {
    return nullptr; // never called: there is no backend in a GPU's memory either
}

} // namespace onebit
