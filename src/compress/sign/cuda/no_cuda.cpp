// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// What stands for cuda_sign_codec.cpp in a build without CUDA.
#include "compress/sign/sign_codec.hpp"

namespace onebit {

Status make_cuda_sign_codec(const CodecConfig& /*config*/, std::unique_ptr<Codec>* /*codec*/) {
    return Status::error(ONEBIT_ERROR_UNSUPPORTED,
                         "config.memory: ONEBIT_MEMORY_CUDA: this libonebit was built without CUDA (ONEBIT_CUDA)");
}

} // namespace onebit
